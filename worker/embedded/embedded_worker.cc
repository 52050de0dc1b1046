#include "worker/embedded/embedded_worker.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/check.h"
#include "common/logging.h"
#include "worker/data/dataset.h"
#include "worker/gradient_norm.h"

namespace slackline::worker {
namespace {

// As the trainer has them: from here on it pays to push while backward goes on, in a thread of its own.
constexpr uint64_t kEmbeddedBackgroundElementsMin = 4 << 20;
constexpr absl::Duration kEmbeddedGoodbye = absl::Seconds(2);

uint64_t TrainedElements(const std::vector<TensorInfo>& tensors) {
  uint64_t elements = 0;
  for (const TensorInfo& tensor : tensors) elements += tensor.trained ? tensor.elements() : 0;
  return elements;
}

// Calls `late` where it lives longer than `after`.
class EmbeddedWatchdog {
 public:
  EmbeddedWatchdog(absl::Duration after, std::function<void()> late)
      : thread_([this, after, late = std::move(late)] {
          if (!over_.WaitForNotificationWithTimeout(after)) late();
        }) {}
  ~EmbeddedWatchdog() {
    over_.Notify();
    thread_.join();
  }

 private:
  absl::Notification over_;
  std::thread thread_;
};

}  // namespace

EmbeddedWorker::EmbeddedWorker(Options options, const Parts& parts) : options_(std::move(options)), parts_(parts) {
  SLACKLINE_CHECK(options_.window > 0 && parts_.push.size() == options_.window &&
                  parts_.parameters.size() == options_.window);
  for (size_t i = 0; i < parts_.push.size(); ++i) {
    SLACKLINE_CHECK(parts_.push[i].size() == push().size() && parts_.parameters[i].size() == push().size());
  }
  parts_.link.set_on_end([this](const absl::Status& status, const std::string& reason) { OnLifeEnd(status, reason); });
  parts_.link.set_on_map([this](const ShardMap& map) { OnMap(map); });
}

EmbeddedWorker::~EmbeddedWorker() {
  parts_.link.set_on_end(nullptr);
  parts_.link.set_on_map(nullptr);
}

absl::Duration EmbeddedWorker::silence_max() const {
  return std::max({options_.timeouts.out_of_reach(), options_.timeouts.stall / 2, options_.server_return});
}

absl::StatusOr<EmbeddedTask> EmbeddedWorker::Next(bool range_done) {
  if (left_) return absl::FailedPreconditionError("this worker has left the job");
  if (Ended()) return EmbeddedEnd{*view().ended};
  if (!failure_.ok()) return failure_;
  if (step_open_) return absl::FailedPreconditionError("a step is under way: it has gradients, and was not taken yet");
  if (range_ && range_done) {
    if (range_done_ < range_->end - range_->begin) {
      return absl::FailedPreconditionError(absl::StrCat("range ", range_->range.value(), " is not done: ", range_done_,
                                                        " of its ", range_->end - range_->begin,
                                                        " samples were in a step"));
    }
  }
  if (!begun_.empty()) {
    absl::Status finished = Cause(FinishSteps(0));
    if (absl::IsFailedPrecondition(finished)) finished = JoinAgain(finished);
    if (Ended()) return EmbeddedEnd{*view().ended};
    if (!finished.ok()) return failure_ = finished;
  }
  RangeId done;
  if (range_ && range_done) {
    const double seconds = absl::ToDoubleSeconds(parts_.time.Now() - range_begin_);
    if (seconds > 0) samples_per_second_ = static_cast<double>(range_done_) / seconds;
    done = range_->range;
  }
  absl::StatusOr<EmbeddedTask> task = Work(done);
  if (!task.ok() && Ended()) return EmbeddedEnd{*view().ended};
  return task;
}

absl::StatusOr<EmbeddedTask> EmbeddedWorker::Work(RangeId done) {
  if (view().lives == 0) {
    absl::Status in = Cause(Enter());
    if (absl::IsFailedPrecondition(in)) in = JoinAgain(in);
    if (!in.ok()) return in;
  }
  while (true) {
    const absl::StatusOr<worker::Work> work = parts_.link.NextWork(std::exchange(done, RangeId()), samples_per_second_);
    absl::Status status = Cause(work.status());
    if (status.ok()) {
      range_.reset();
      if (const auto* range = std::get_if<RangeWork>(&*work)) {
        if (client_ != nullptr) return TakeRange(*range);
        status = absl::FailedPreconditionError("there is work for a worker on standby");
      } else if (const auto* evaluation = std::get_if<EvaluationWork>(&*work)) {
        status = Cause(PullNewest(evaluation->final));
        if (status.ok()) return *evaluation;
      } else if (const auto* standby = std::get_if<StandbyWork>(&*work)) {
        CloseClient("standing by");
        status = Cause(parts_.link.Pause(standby->retry));
      } else {
        Stop(absl::OkStatus(), std::get<LeaveWork>(*work).reason);
        return EmbeddedEnd{std::get<LeaveWork>(*work).reason};
      }
    }
    if (absl::IsFailedPrecondition(status)) status = JoinAgain(status);
    if (!status.ok()) return status;
  }
}

absl::StatusOr<EmbeddedTask> EmbeddedWorker::TakeRange(const RangeWork& range) {
  if (range.begin >= range.end || range.end > options_.train_samples) {
    return absl::InternalError(absl::StrCat("range ", range.range.value(), " is [", range.begin, ", ", range.end,
                                            ") of ", options_.train_samples, " training samples"));
  }
  if (order_epoch_ != range.epoch) {
    order_ = EpochOrder(options_.train_samples, options_.seed, range.epoch);
    order_epoch_ = range.epoch;
  }
  range_ = range;
  if (range_->batch_size == 0) range_->batch_size = options_.batch_size;
  range_done_ = range_answered_ = 0;
  range_begin_ = parts_.time.Now();
  Alive();
  const auto first = order_.begin() + static_cast<ptrdiff_t>(range.begin);
  return EmbeddedRange{*range_, {first, first + static_cast<ptrdiff_t>(range.end - range.begin)}};
}

absl::Status EmbeddedWorker::JoinAgain(absl::Status why) {
  do {
    CloseClient(std::string(why.message()));
    range_.reset();
    if (++fruitless_ > options_.fruitless_lives_max) return why;
    log::Info("this worker joins again: ", std::string(why.message()));
    why = Cause(Enter());
  } while (absl::IsFailedPrecondition(why));
  return why;
}

absl::Status EmbeddedWorker::Enter() {
  const absl::StatusOr<Membership> life = parts_.link.Join();
  if (!life.ok()) return life.status();
  life_ = *life;
  absl::StatusOr<ShardMap> map = parts_.link.GetShardMap();
  if (!map.ok()) return map.status();
  map_ = *std::move(map);
  const uint64_t trained = TrainedElements(options_.tensors);
  if (map_.elements != parameters().size() || map_.trained_elements != trained) {
    return absl::InternalError(absl::StrCat("the shard map has ", map_.elements, " elements, ", map_.trained_elements,
                                            " of them trained; the model has ", parameters().size(), " and ", trained));
  }
  log::Info("live as worker ", life_.worker.value(), " (incarnation ", life_.incarnation.value(), ") from clock ",
            life_.first_clock.value(), life_.send_seed ? ", sends the initial weights" : "");
  {
    absl::MutexLock lock(&mutex_);
    view_.worker = life_.worker.value();
    view_.clock = life_.first_clock;
    ++view_.lives;
  }
  absl::Status status = OpenClient(/*reader=*/false);
  if (!status.ok()) return status;
  const absl::Duration timeout = std::max(options_.timeouts.startup, silence_max());
  if (life_.send_seed) status = Await([&] { return client_->Seed(parameters(), timeout); });
  if (!status.ok()) return status;
  status = Await([&] { return client_->Pull(parameters(), timeout); });
  Alive();
  return status;
}

absl::Status EmbeddedWorker::PullNewest(bool final) {
  if (!final) {
    if (client_ == nullptr) return absl::FailedPreconditionError("there is an evaluation for a worker on standby");
    return Await([&] { return client_->Pull(parameters(), silence_max()); });
  }
  CloseClient("reading the final weights");
  const absl::Status opened = OpenClient(/*reader=*/true);
  if (!opened.ok()) return opened;
  const absl::Status status = Await([&] { return client_->Pull(parameters(), silence_max()); });
  CloseClient("has read the final weights");
  return status;
}

absl::Status EmbeddedWorker::OpenStep() {
  if (left_) return absl::FailedPreconditionError("this worker has left the job");
  if (client_ == nullptr) {
    return absl::FailedPreconditionError("there is no step to take: this worker has no samples of the job");
  }
  const absl::Status opened = client_->OpenStep(push());
  step_open_ = opened.ok();
  return opened;
}

bool EmbeddedWorker::leaves_early() const { return parameters().size() >= kEmbeddedBackgroundElementsMin; }

absl::Status EmbeddedWorker::Ready(uint64_t from) {
  if (!step_open_) {
    if (const absl::Status opened = OpenStep(); !opened.ok()) return opened;
  }
  left_early_ = true;
  client_->Ready(from);
  return absl::OkStatus();
}

absl::StatusOr<EmbeddedStep> EmbeddedWorker::Step(const EmbeddedStepInfo& info) {
  if (Ended()) return EmbeddedStep{.outcome = EmbeddedStep::Outcome::kEnded, .report = {}};
  if (!failure_.ok()) return failure_;
  if (!step_open_) {
    if (const absl::Status opened = OpenStep(); !opened.ok()) return opened;
  }
  const double norm = info.gradient_norm ? *info.gradient_norm : L2Norm(push().first(map_.trained_elements));
  if (const absl::Status finite = CheckFinite(info, norm); !finite.ok()) {
    // Servers have parts of it, which the next step of this client would be about.
    return left_early_ ? failure_ = finite : finite;
  }
  range_done_ += range_ ? info.samples : 0;
  step_open_ = false;
  left_early_ = false;
  // That of the newest weights, if it comes to that: there is a wait at once then.
  const size_t part = (parameters_used_ + begun_.size() + 1) % parts_.parameters.size();
  const absl::Status committed = client_->CommitStep({.samples = info.samples,
                                                      .loss = info.loss.value_or(0),
                                                      .gradient_norm = norm,
                                                      .range = range_ ? range_->range : RangeId(),
                                                      .range_samples_done = range_done_},
                                                     parts_.parameters[part]);
  if (!committed.ok()) return committed;
  begun_.push_back({info, norm, range_done_});
  const absl::Status status = Cause(FinishSteps(options_.window - 1));
  if (status.ok()) return EmbeddedStep{.outcome = EmbeddedStep::Outcome::kTaken, .report = last_report_};
  if (Ended()) return EmbeddedStep{.outcome = EmbeddedStep::Outcome::kEnded, .report = {}};
  if (!absl::IsFailedPrecondition(status)) return failure_ = status;
  const absl::Status again = JoinAgain(status);
  if (Ended()) return EmbeddedStep{.outcome = EmbeddedStep::Outcome::kEnded, .report = {}};
  if (!again.ok()) return failure_ = again;
  return EmbeddedStep{.outcome = EmbeddedStep::Outcome::kRejoined, .report = {}};
}

absl::Status EmbeddedWorker::FinishSteps(size_t left) {
  while (begun_.size() > left) {
    const absl::Time begin = parts_.time.Now();
    absl::StatusOr<StepReport> report = Await([&] { return client_->FinishStep(silence_max()); });
    if (!report.ok()) return report.status();
    const BegunStep step = begun_.front();
    begun_.pop_front();
    range_answered_ = step.range_done;
    ++steps_finished_;
    parameters_used_ = (parameters_used_ + 1) % parts_.parameters.size();
    fruitless_ = 0;
    Record(step, *report, parts_.time.Now() - begin);
    last_report_ = *std::move(report);
  }
  return absl::OkStatus();
}

void EmbeddedWorker::FinishStepsSoon() {
  if (begun_.empty() || !failure_.ok()) return;
  const EmbeddedWatchdog watchdog(kEmbeddedGoodbye, [this] {
    absl::MutexLock lock(&mutex_);
    late_ = true;
    if (waiting_) client_->Cancel("this worker leaves, and has waited for its last steps long enough");
  });
  const absl::Status finished = FinishSteps(0);
  if (!finished.ok()) {
    log::Warning("this worker leaves with ", begun_.size(),
                 " steps in flight, which may be lost: ", std::string(finished.message()));
  }
}

void EmbeddedWorker::Record(const BegunStep& step, const StepReport& report, absl::Duration wait) {
  const EmbeddedStepInfo& info = step.info;
  StepFacts facts;
  facts.clock = report.clock;
  facts.samples = info.samples;
  facts.loss = info.loss.value_or(0);
  facts.without_loss = info.loss ? 0 : info.samples;
  facts.correct = info.correct.value_or(0);
  facts.unjudged = info.correct ? 0 : info.samples;
  facts.compute = info.compute;
  facts.data_wait = info.data_wait;
  facts.wait = wait;
  facts.push = report.pushed;
  facts.pull = report.pulled;
  facts.applied = report.shards_applied;
  facts.discarded = report.shards_discarded;
  facts.quarantined = report.shards_quarantined;
  facts.lost = report.lost;
  facts.staleness_sum = report.staleness_sum;
  facts.staleness_max = report.staleness_max;
  facts.staleness = report.staleness;
  facts.slack = report.slack;
  facts.gradient_norm = step.norm;
  facts.pushed_bytes = report.pushed_bytes;
  facts.pulled_bytes = report.pulled_bytes;
  parts_.link.progress().Record(facts, parts_.time.Now());
  parts_.metrics.Record(facts);
  absl::MutexLock lock(&mutex_);
  ++view_.steps;
  view_.clock = report.clock;
  view_.staleness = report.staleness_max;
  view_.slack = report.slack;
}

absl::Status EmbeddedWorker::CheckFinite(const EmbeddedStepInfo& info, double norm) const {
  const double buffers = L2Norm(push().subspan(map_.trained_elements));
  const double loss = info.loss.value_or(0);
  if (std::isfinite(loss) && std::isfinite(norm) && std::isfinite(buffers)) return absl::OkStatus();
  const std::string what = !std::isfinite(loss)   ? absl::StrCat("the loss is ", loss)
                           : !std::isfinite(norm) ? absl::StrCat("the gradient's norm is ", norm)
                                                  : "a buffer of the model (batch norm) is not finite";
  return absl::InternalError(
      absl::StrCat("step ", client_->clock().value() + begun_.size() + 1, ": ", what,
                   "; nothing of it was applied. A smaller optimizer.lr, a warm-up or optimizer.clip_norm usually "
                   "helps"));
}

absl::Status EmbeddedWorker::ReportEvaluation(const EvaluationResult& result) {
  if (result.metrics.samples > 0) {
    parts_.metrics.RecordEvaluation(result.metrics.accuracy, absl::Seconds(result.seconds));
  }
  const absl::Status reported = Cause(parts_.link.ReportEvaluation(result));
  if (!reported.ok() || result.work.final || client_ == nullptr) return reported;
  // The others went on meanwhile: the next gradient would be as stale as this has taken.
  return Cause(Await([&] { return client_->Pull(parameters(), silence_max()); }));
}

void EmbeddedWorker::Leave(const std::string& reason, bool in_order) {
  if (std::exchange(left_, true)) return;
  FinishStepsSoon();
  CloseClient(reason);
  RangePart trained;
  if (range_ && in_order) trained = {range_->range, std::min(range_->begin + range_answered_, range_->end)};
  parts_.link.Leave(reason, trained);
  absl::MutexLock lock(&mutex_);
  if (!view_.ended) view_.ended = reason;
}

void EmbeddedWorker::Interrupt(const std::string& reason) { Stop(absl::CancelledError(reason), reason); }

EmbeddedView EmbeddedWorker::view() const {
  absl::MutexLock lock(&mutex_);
  return view_;
}

bool EmbeddedWorker::Ended() const {
  absl::MutexLock lock(&mutex_);
  return stopped_ && stopped_->status.ok();
}

absl::Status EmbeddedWorker::Cause(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return stopped_->status.ok() ? absl::CancelledError(stopped_->reason) : stopped_->status;
  const std::optional<std::string> reason = std::exchange(expelled_, std::nullopt);
  return reason ? absl::FailedPreconditionError(absl::StrCat("the scheduler expelled this worker: ", *reason)) : status;
}

absl::Status EmbeddedWorker::OpenClient(bool reader) {
  ClientOptions options;
  options.job = life_.job;
  options.worker = life_.worker;
  options.incarnation = life_.incarnation;
  options.first_clock = reader ? Clock64(0) : life_.first_clock;
  options.reader = reader;
  options.chunk_bytes = options_.chunk_bytes;
  options.window = options_.window;
  options.background = options_.window > 1 || leaves_early();
  options.same_host = options_.same_host;
  options.protection = options_.protection;
  if (!reader) {
    options.push_runs = options_.push_runs;
    options.pull_encoding = options_.pull_encoding;
    options.push_segment = parts_.push_segment;
  }
  options.timeouts = options_.timeouts;
  options.on_notice = [](const std::string& message) { log::Info(message); };
  absl::StatusOr<std::unique_ptr<Client>> client = parts_.connect(options, map_);
  if (!client.ok()) return client.status();
  absl::MutexLock lock(&mutex_);
  client_ = *std::move(client);
  if (newest_map_ && newest_map_->generation > map_.generation) client_->Remap(*newest_map_);
  return absl::OkStatus();
}

void EmbeddedWorker::CloseClient(const std::string& reason) {
  step_open_ = false;
  left_early_ = false;
  begun_.clear();
  failure_ = absl::OkStatus();
  if (client_ == nullptr) return;
  client_->Close(reason, kEmbeddedGoodbye);
  absl::MutexLock lock(&mutex_);
  client_.reset();
}

template <typename Call>
auto EmbeddedWorker::Await(Call call) -> decltype(call()) {
  const absl::Status begin = BeginWait();
  if (!begin.ok()) return begin;
  auto result = call();
  EndWait();
  return result;
}

absl::Status EmbeddedWorker::BeginWait() {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return absl::CancelledError(stopped_->reason);
  if (expelled_) return absl::FailedPreconditionError(*expelled_);
  if (late_) return absl::CancelledError("there was no time to wait");
  waiting_ = true;
  parts_.link.progress().SetWaiting(true);
  return absl::OkStatus();
}

void EmbeddedWorker::EndWait() {
  absl::MutexLock lock(&mutex_);
  waiting_ = false;
  parts_.link.progress().SetWaiting(false);
}

void EmbeddedWorker::Stop(const absl::Status& status, const std::string& reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return;
    stopped_ = Stopped{status, reason};
    view_.ended = reason;
    // Where nobody waits, the streams stay whole for a goodbye.
    if (waiting_) client_->Cancel(reason);
  }
  parts_.link.Interrupt(reason);
}

void EmbeddedWorker::OnLifeEnd(const absl::Status& status, const std::string& reason) {
  if (!absl::IsFailedPrecondition(status)) return Stop(status, reason);
  // Expelled: the servers may keep silent about it, and this worker may come back under another incarnation.
  log::Warning("the scheduler expelled this worker: ", reason);
  absl::MutexLock lock(&mutex_);
  expelled_ = reason;
  if (waiting_) client_->Cancel(reason);
}

void EmbeddedWorker::OnMap(const ShardMap& map) {
  absl::MutexLock lock(&mutex_);
  newest_map_ = map;
  if (client_ != nullptr) client_->Remap(map);
}

}  // namespace slackline::worker
