#include "worker/client/client.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include <grpcpp/alarm.h>
#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/process/thread_cores.h"
#include "worker/client/exchange.h"

namespace slackline::worker {
namespace {

// How long gRPC may hold on to the trainer's memory after a request is over and its streams were cut if it failed.
constexpr absl::Duration kLoanTimeout = absl::Seconds(30);

// The trainer's half. The exchange is run by the caller's own thread, during calls, or by an I/O thread that gets one
// request at a time.
class ClientImpl : public Client {
 public:
  ClientImpl(const ClientOptions& options, const ShardMap& map)
      : reader_(options.reader),
        elements_(map.elements),
        window_(options.window),
        flush_max_(options.timeouts.notice()),
        clock_(options.first_clock),
        exchange_(options, map, queue_, time_) {
    wake_.client = this;
    for (const ShardInfo& shard : map.shards) shard_begins_.push_back(shard.begin);
    if (options.background && window_ == 1) exchange_.set_on_pulled([this](uint64_t to) { Pulled(to); });
    exchange_.Start();
    if (options.background)
      thread_ = std::thread([this, cores = options.cores] {
        // Who says so has bound a thread to them before; else it runs where it may.
        BindThread(cores).IgnoreError();
        RunExchange([this] { return Over(); });
      });
  }

  ~ClientImpl() override {
    {
      absl::MutexLock lock(&mutex_);
      stop_ = true;
      Wake();
    }
    if (thread_.joinable()) {
      thread_.join();
    } else {
      RunExchange([this] { return Over(); });
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
    // The memory of steps that nobody has finished.
    if (open_) open_->loans->AwaitNone(kLoanTimeout);
    for (const Committed& step : committed_) step.loans->AwaitNone(kLoanTimeout);
  }

  absl::Status Seed(absl::Span<const float> parameters, absl::Duration timeout) override {
    if (reader_) return absl::InvalidArgumentError("a reader sends no weights");
    if (absl::Status size = CheckSize("initial weights have", parameters.size()); !size.ok()) return size;
    Request request{.kind = Request::Kind::kSeed, .seed = parameters, .timeout = timeout};
    request.loans = std::make_shared<Loans>();
    const absl::Status status = Run(request);
    const absl::Status returned = AwaitLoans(*request.loans);
    return status.ok() ? returned : status;
  }

  absl::Status Pull(absl::Span<float> parameters, absl::Duration timeout) override {
    if (open_ || !committed_.empty()) return absl::FailedPreconditionError("a pull while steps are open or in flight");
    if (absl::Status size = CheckSize("the parameters have", parameters.size()); !size.ok()) return size;
    Request request{.kind = Request::Kind::kPull, .parameters = parameters, .timeout = timeout};
    const absl::Status status = Run(request);
    pulled_ |= status.ok();
    return status;
  }

  absl::Status OpenStep(absl::Span<const float> push) override {
    if (reader_) return absl::InvalidArgumentError("a reader pushes nothing");
    if (!pulled_) return absl::FailedPreconditionError("a step needs a pull before it");
    if (open_) return absl::FailedPreconditionError("a step is open already");
    if (committed_.size() >= window_) {
      return absl::FailedPreconditionError(
          absl::StrCat(committed_.size(), " steps are in flight; the window allows ", window_));
    }
    if (absl::Status size = CheckSize("the push has", push.size()); !size.ok()) return size;
    open_ = LentPush{push, std::make_shared<Loans>()};
    first_ready_ = shard_begins_.end();
    Tell({.opened = open_});
    return absl::OkStatus();
  }

  void Ready(uint64_t from) override {
    if (!open_ || !thread_.joinable()) return;
    const auto first = std::lower_bound(shard_begins_.begin(), shard_begins_.end(), from);
    if (first < first_ready_) {
      first_ready_ = first;
      Tell({.ready_from = from});
    }
  }

  absl::Status CommitStep(const PushInfo& info, absl::Span<float> parameters) override {
    if (!open_) return absl::FailedPreconditionError("no step is open");
    if (absl::Status fit = CheckDestination(parameters); !fit.ok()) return fit;
    committed_.push_back({open_->loans, parameters.data()});
    open_.reset();
    {
      absl::MutexLock lock(&mutex_);
      pulled_to_ = 0;
    }
    Tell({.committed = Commit{info, parameters}});
    return absl::OkStatus();
  }

  absl::Status BeginStep(absl::Span<const float> push, const PushInfo& info, absl::Span<float> parameters) override {
    if (absl::Status fit = CheckDestination(parameters); !fit.ok()) return fit;
    const absl::Status opened = OpenStep(push);
    return opened.ok() ? CommitStep(info, parameters) : opened;
  }

  absl::StatusOr<StepReport> FinishStep(absl::Duration timeout) override {
    if (committed_.empty()) return absl::FailedPreconditionError("no step is in flight");
    Request own{.kind = Request::Kind::kFinishStep, .timeout = timeout};
    const absl::Status status = finishing_ ? AwaitDone() : Run(own);
    const Request request = finishing_ ? *std::exchange(finishing_, std::nullopt) : own;
    const absl::Status returned = AwaitLoans(*committed_.front().loans);
    committed_.pop_front();
    if (!status.ok()) return status;
    if (!returned.ok()) return returned;
    clock_ = request.report.clock;
    return request.report;
  }

  bool BeginFinish(absl::Duration timeout) override {
    if (!thread_.joinable() || window_ != 1 || committed_.empty() || finishing_) return false;
    finishing_ = Request{.kind = Request::Kind::kFinishStep, .timeout = timeout};
    absl::MutexLock lock(&mutex_);
    Post(*finishing_);
    return true;
  }

  absl::StatusOr<uint64_t> AwaitPulled(uint64_t end) override {
    if (!finishing_) return absl::FailedPreconditionError("nothing has begun to finish");
    absl::MutexLock lock(&mutex_);
    awaited_to_ = std::min(end, elements_);
    // No deadline here, as in Run().
    mutex_.Await(absl::Condition(this, &ClientImpl::HasPulled));
    if (done_ && !result_.ok()) return result_;
    return done_ ? elements_ : pulled_to_;
  }

  size_t steps_in_flight() const override { return committed_.size(); }

  absl::StatusOr<StepReport> Step(absl::Span<const float> push, const PushInfo& info, absl::Span<float> parameters,
                                  absl::Duration timeout) override {
    if (!committed_.empty()) return absl::FailedPreconditionError("other steps are in flight");
    const absl::Status begun = BeginStep(push, info, parameters);
    return begun.ok() ? FinishStep(timeout) : begun;
  }

  void Close(const std::string& reason, absl::Duration timeout) override {
    if (!thread_.joinable()) {
      exchange_.Goodbye(reason);
      return RunUntil(time_.Now() + timeout, [&] { return exchange_.ended(); });
    }
    absl::MutexLock lock(&mutex_);
    goodbye_ = reason;
    Wake();
    mutex_.AwaitWithTimeout(absl::Condition(&ended_), timeout);
  }

  void Remap(const ShardMap& map) override {
    absl::MutexLock lock(&mutex_);
    remapped_ = map;
    Wake();
  }

  void Cancel(const std::string& reason) override {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return;
    cancelled_ = reason;
    Wake();
  }

  Clock64 clock() const override { return clock_; }

 private:
  struct Committed {
    std::shared_ptr<Loans> loans;
    const float* parameters;
  };
  struct Commit {
    PushInfo info;
    absl::Span<float> parameters;
  };
  // What the trainer does to its open step: one of them.
  struct News {
    std::optional<LentPush> opened = {};
    std::optional<uint64_t> ready_from = {};
    std::optional<Commit> committed = {};
  };

  // Something waits in the mailbox.
  struct WakeOperation : QueuedOperation {
    void Done(bool) override { client->TakeMail(); }
    ClientImpl* client = nullptr;
  };

  // No deadline here: the exchange completes every request, by its own.
  absl::Status Run(Request& request) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!thread_.joinable()) {
      std::optional<absl::Status> result;
      if (const auto cancelled = Cancelled()) exchange_.Fail(absl::CancelledError(*cancelled));
      exchange_.Begin(request, [&](const absl::Status& status) { result = status; });
      RunExchange([&] { return result.has_value(); });
      // What gRPC still sends from the caller's memory ends with the streams.
      if (!result->ok()) RunUntil(time_.Now() + kLoanTimeout, [&] { return exchange_.ended(); });
      // With further steps in flight the caller comes back at once, and small items wait for each other.
      if (committed_.size() > 1) return *result;
      // What was lent is given back now: nobody sends it while the caller computes.
      RunUntil(time_.Now() + flush_max_, [&] { return exchange_.flushed(); });
      return *result;
    }
    {
      absl::MutexLock lock(&mutex_);
      Post(request);
    }
    return AwaitDone();
  }

  void Post(Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    posted_ = &request;
    done_ = false;
    Wake();
  }

  absl::Status AwaitDone() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&done_));
    return result_;
  }

  bool HasPulled() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return done_ || pulled_to_ >= awaited_to_; }

  // The I/O thread.
  void Pulled(uint64_t to) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    pulled_to_ = to;
  }

  std::optional<std::string> Cancelled() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return cancelled_;
  }

  static absl::Status AwaitLoans(Loans& loans) {
    if (loans.AwaitNone(kLoanTimeout)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("gRPC still holds the push memory ", absl::FormatDuration(kLoanTimeout),
                                            " after the request ended"));
  }

  absl::Status CheckSize(const char* what, size_t elements) const {
    if (elements == elements_) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", elements, " elements, the model has ", elements_, " elements"));
  }

  absl::Status CheckDestination(absl::Span<const float> parameters) const {
    if (absl::Status size = CheckSize("the parameters have", parameters.size()); !size.ok()) return size;
    const bool taken = std::any_of(committed_.begin(), committed_.end(),
                                   [&](const Committed& step) { return step.parameters == parameters.data(); });
    if (taken) return absl::InvalidArgumentError("these parameters are those of another step in flight");
    return absl::OkStatus();
  }

  // Goes to the exchange now, or with the next mail.
  void Tell(const News& news) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!thread_.joinable()) return Take(news);
    absl::MutexLock lock(&mutex_);
    news_.push_back(news);
    Wake();
  }

  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (wake_pending_ || io_over_) return;
    wake_pending_ = true;
    // The past: gRPC rounds a time of now up by a millisecond.
    alarm_.Set(&queue_, gpr_inf_past(GPR_CLOCK_MONOTONIC), static_cast<QueuedOperation*>(&wake_));
  }

  // --- Whoever runs the exchange ---

  void RunUntil(absl::Time deadline, absl::FunctionRef<bool()> over) {
    RunExchange([&] { return over() || time_.Now() >= deadline; }, deadline);
  }

  // Until `over`, which is asked after every operation and by `deadline`.
  void RunExchange(absl::FunctionRef<bool()> over, absl::Time deadline = absl::InfiniteFuture()) {
    while (!over()) {
      const absl::Time now = time_.Now();
      if (now >= exchange_.next_tick()) exchange_.Tick();
      WaitForOperation(std::min(exchange_.next_tick(), deadline) - now);
    }
  }

  void WaitForOperation(absl::Duration longest) {
    void* tag = nullptr;
    bool ok = false;
    constexpr absl::Duration kLongest = absl::Seconds(10);
    const int64_t wait_us = absl::ToInt64Microseconds(std::min(longest, kLongest));
    const gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_micros(std::max<int64_t>(0, wait_us), GPR_TIMESPAN));
    if (queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) {
      static_cast<QueuedOperation*>(tag)->Done(ok);
    }
  }

  void Take(const News& news) {
    if (news.opened) exchange_.OpenStep(*news.opened);
    if (news.ready_from) exchange_.Ready(*news.ready_from);
    if (news.committed) exchange_.CommitStep(news.committed->info, news.committed->parameters);
  }

  void TakeMail() ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<News> all_news;
    Request* request = nullptr;
    std::optional<std::string> cancelled, goodbye;
    std::optional<ShardMap> remapped;
    bool stop = false;
    {
      absl::MutexLock lock(&mutex_);
      wake_pending_ = false;
      all_news.swap(news_);
      request = std::exchange(posted_, nullptr);
      cancelled = cancelled_;
      goodbye = std::exchange(goodbye_, std::nullopt);
      remapped = std::exchange(remapped_, std::nullopt);
      stop = stop_;
    }
    if (cancelled) exchange_.Fail(absl::CancelledError(*cancelled));
    if (remapped) exchange_.Remap(*remapped);
    for (const News& news : all_news) Take(news);
    if (request != nullptr) exchange_.Begin(*request, [this](const absl::Status& status) { Complete(status); });
    if (goodbye) exchange_.Goodbye(*goodbye);
    if (stop) exchange_.Fail(absl::CancelledError("the client is going away"));
    stopping_ = stop;
  }

  void Complete(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    result_ = status;
    done_ = true;
  }

  bool Over() ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!exchange_.ended()) return false;
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    io_over_ = stopping_ && !wake_pending_;
    return io_over_;
  }

  const bool reader_;
  const uint64_t elements_;
  const uint32_t window_;
  const absl::Duration flush_max_;
  // The trainer's thread.
  Clock64 clock_;
  bool pulled_ = false;
  std::vector<uint64_t> shard_begins_;
  std::optional<LentPush> open_;
  std::vector<uint64_t>::const_iterator first_ready_;  // of the open step's shards
  std::deque<Committed> committed_;                    // in flight, oldest first
  std::optional<Request> finishing_;                   // the step that is waited for, from BeginFinish() on

  const SteadyTime time_;
  grpc::CompletionQueue queue_;
  WakeOperation wake_;
  // Of whoever runs the exchange.
  Exchange exchange_;
  bool stopping_ = false;

  absl::Mutex mutex_;
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mutex_);
  bool wake_pending_ ABSL_GUARDED_BY(mutex_) = false;
  bool io_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<News> news_ ABSL_GUARDED_BY(mutex_);
  Request* posted_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t pulled_to_ ABSL_GUARDED_BY(mutex_) = 0;   // of the step in flight, with a window of 1
  uint64_t awaited_to_ ABSL_GUARDED_BY(mutex_) = 0;  // by AwaitPulled()
  absl::Status result_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> goodbye_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> cancelled_ ABSL_GUARDED_BY(mutex_);
  std::optional<ShardMap> remapped_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const ClientOptions& options, const ShardMap& map) {
  const absl::Status valid = ValidateMap(map);
  if (!valid.ok()) return valid;
  return std::make_unique<ClientImpl>(options, map);
}

}  // namespace slackline::worker
