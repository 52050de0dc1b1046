#include "bench/scheduler_load/fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/protocol_version.h"
#include "common/rpc/channel.h"
#include "common/rpc/retryable.h"
#include "common/time/next_due.h"

namespace slackline::bench {
namespace {

// A worker asks again after this time on average, if an attempt failed in a way that may pass.
constexpr absl::Duration kPause = absl::Milliseconds(250);
// Longest time by which a call begins late.
constexpr absl::Duration kIdle = absl::Milliseconds(1);
constexpr uint64_t kElements = 1'000'000;
// Parts of a push: one for each of eight shards.
constexpr uint64_t kParts = 8;

}  // namespace

struct Fleet::Member {
  std::string name;
  std::string address;  // of a server
  bool server = false;
  bool gone = false;  // died, or left
  bool live = false;
  uint64_t job = 0;
  uint32_t number = 0;
  uint64_t incarnation = 0;
  uint64_t instance = 0;
  absl::Time next_beat = absl::Now();
  uint64_t range = 0;
  absl::Time range_began;
  uint64_t range_samples = 0;
  wire::WorkerProgress progress;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<wire::Scheduler::Stub> stub;

  // Adds what a worker of this speed has trained of its range by now, to the totals of its whole life.
  void Train(absl::Time now, absl::Duration step, uint32_t batch) {
    if (range == 0) return;
    const auto so_far = static_cast<uint64_t>(std::max(int64_t{0}, (now - range_began) / step)) * batch;
    const uint64_t trained = std::min(so_far, range_samples);
    const uint64_t steps = (trained + batch - 1) / batch;
    range_samples -= trained;
    range_began += static_cast<int64_t>(steps) * step;
    progress.set_samples(progress.samples() + trained);
    progress.set_steps(progress.steps() + steps);
    progress.set_clock(progress.clock() + steps);
    progress.set_loss_sum(progress.loss_sum() + static_cast<double>(trained));
    progress.set_compute_seconds(progress.compute_seconds() + absl::ToDoubleSeconds(step) * static_cast<double>(steps));
    progress.set_step_ms_median(absl::ToDoubleMilliseconds(step));
    progress.set_slack_max(3);
    progress.set_pushes_applied(progress.pushes_applied() + kParts * steps);
    progress.set_staleness_sum(progress.staleness_sum() + 10 * kParts * steps);
    progress.set_staleness_answers(progress.staleness_answers() + kParts * steps);
    while (progress.staleness_counts_size() < 20) progress.add_staleness_counts(0);
    progress.set_staleness_counts(10, progress.staleness_counts(10) + kParts * steps);
    progress.set_pushed_bytes(progress.pushed_bytes() + 4 * kElements * steps);
    progress.set_pulled_bytes(progress.pulled_bytes() + 4 * kElements * steps);
  }
};

Fleet::Fleet(Options options) : options_(std::move(options)) {
  absl::MutexLock lock(&mutex_);
  for (const std::string& server : options_.servers) {
    const std::shared_ptr<Member> member = Add(absl::StrCat("ps-", members_.size() + 1));
    member->server = true;
    member->address = server;
    RegisterServer(member);
  }
  for (uint32_t i = 0; i < options_.workers; ++i) AddWorker(absl::Now() + options_.arrival * i / options_.workers);
  thread_ = std::thread([this] { Run(); });
}

Fleet::~Fleet() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  thread_.join();
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](uint32_t* in_flight) { return *in_flight == 0; }, &in_flight_));
}

void Fleet::set_deaths_per_minute(double deaths) {
  absl::MutexLock lock(&mutex_);
  deaths_per_minute_ = deaths;
  next_death_ = deaths > 0 ? absl::Now() : absl::InfiniteFuture();
}

FleetCounts Fleet::counts() const {
  absl::MutexLock lock(&mutex_);
  FleetCounts counts = counts_;
  for (const auto& member : members_) counts.live += member->live ? 1 : 0;
  return counts;
}

std::vector<double> Fleet::TakeHeartbeatTimes() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(heartbeat_us_, {});
}

absl::Status Fleet::mistake() const {
  absl::MutexLock lock(&mutex_);
  return mistake_;
}

void Fleet::At(absl::Time time, Then then) { due_.emplace(time, std::move(then)); }

void Fleet::Later(const std::shared_ptr<Member>& member, absl::Time time,
                  void (Fleet::*call)(const std::shared_ptr<Member>&)) {
  At(time, [this, member, call] {
    if (!member->gone) (this->*call)(member);
  });
}

void Fleet::Fail(const std::shared_ptr<Member>& member, absl::Status status) {
  member->gone = true;
  if (mistake_.ok()) mistake_ = absl::Status(status.code(), absl::StrCat(member->name, ": ", status.message()));
}

void Fleet::Run() {
  absl::MutexLock lock(&mutex_);
  while (!closed_) {
    const absl::Time now = absl::Now();
    if (next_death_ <= now) {
      next_death_ += absl::Minutes(1) / deaths_per_minute_;
      KillOne();
    } else if (!due_.empty() && due_.begin()->first <= now) {
      const Then then = std::move(due_.extract(due_.begin()).mapped());
      then();
    } else {
      mutex_.AwaitWithTimeout(absl::Condition(&closed_), kIdle);
    }
  }
}

std::shared_ptr<Fleet::Member> Fleet::Add(std::string name) {
  const auto member = std::make_shared<Member>();
  member->name = std::move(name);
  member->instance = random_();
  members_.push_back(member);
  // A connection of its own, as on a machine of its own.
  member->channel = rpc::ControlChannel(options_.scheduler);
  member->stub = wire::Scheduler::NewStub(member->channel);
  return member;
}

void Fleet::AddWorker(absl::Time at) {
  At(at, [this] { RegisterWorker(Add(absl::StrCat("worker-", ++named_))); });
}

template <typename Reply, typename Request, typename Method, typename Take>
void Fleet::Call(const std::shared_ptr<Member>& member, const Request& request, absl::Duration timeout, Method method,
                 Take then, void (Fleet::*again)(const std::shared_ptr<Member>&)) {
  struct Round {
    grpc::ClientContext context;
    Request request;
    Reply reply;
  };
  const auto round = std::make_shared<Round>();
  round->context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  round->request = request;
  ++in_flight_;
  const auto done = [this, member, round, then, again](const grpc::Status& answer) {
    const absl::Status status = rpc::FromGrpc(answer);
    absl::MutexLock lock(&mutex_);
    --in_flight_;
    if (closed_ || member->gone) return;
    if (status.ok()) {
      then(round->reply);
    } else if (rpc::IsRetryable(status)) {
      ++counts_.repeated;
      const double part = std::uniform_real_distribution<>(0.5, 1.5)(random_);
      Later(member, absl::Now() + part * kPause, again);
    } else if (absl::IsFailedPrecondition(status) && !member->server) {
      ComeAnew(member);
    } else {
      Fail(member, status);
    }
  };
  method(*member->stub->async(), &round->context, &round->request, &round->reply, done);
}

void Fleet::RegisterServer(const std::shared_ptr<Member>& member) {
  wire::RegisterServerRequest request;
  request.set_name(member->name);
  request.set_address(member->address);
  request.set_job_fingerprint(options_.job_fingerprint);
  SetProtocol(request);
  Call<wire::RegisterServerReply>(
      member, request, options_.timeouts.startup,
      [](auto& stub, auto... rest) { stub.RegisterServer(std::move(rest)...); },
      [this, member](const wire::RegisterServerReply& reply) {
        member->job = reply.job();
        member->number = reply.server();
        member->incarnation = reply.incarnation();
        Beat(member);
      },
      &Fleet::RegisterServer);
}

void Fleet::RegisterWorker(const std::shared_ptr<Member>& member) {
  wire::RegisterWorkerRequest request;
  request.set_name(member->name);
  request.set_job_fingerprint(options_.job_fingerprint);
  request.set_train_samples(options_.train_samples);
  request.set_test_samples(1000);
  request.set_worker(member->number);
  request.set_incarnation(member->incarnation);
  request.set_instance(member->instance);
  request.set_host(absl::StrCat("node-", member->name));
  wire::TensorSpec& tensor = *request.add_tensors();
  tensor.set_name("weight");
  tensor.add_shape(kElements);
  tensor.set_trained(true);
  SetProtocol(request);
  Call<wire::RegisterWorkerReply>(
      member, request, options_.timeouts.worker_dead(),
      [](auto& stub, auto... rest) { stub.RegisterWorker(std::move(rest)...); },
      [this, member](const wire::RegisterWorkerReply& reply) {
        ++counts_.others;
        member->job = reply.job();
        member->number = reply.worker();
        member->incarnation = reply.incarnation();
        member->progress.Clear();
        const double part = std::uniform_real_distribution<>(0, 1)(random_);
        member->next_beat = absl::Now() + part * options_.timeouts.heartbeat;
        Later(member, member->next_beat, &Fleet::Beat);
      },
      &Fleet::RegisterWorker);
}

void Fleet::Beat(const std::shared_ptr<Member>& member) {
  wire::HeartbeatRequest request;
  request.set_job(member->job);
  request.set_role(member->server ? wire::MEMBER_ROLE_SERVER : wire::MEMBER_ROLE_WORKER);
  request.set_member(member->number);
  request.set_incarnation(member->incarnation);
  const absl::Time begin = absl::Now();
  if (member->server) {
    request.mutable_server()->set_seeded(true);
  } else {
    member->Train(begin, options_.step, options_.batch);
    *request.mutable_worker() = member->progress;
  }
  Call<wire::HeartbeatReply>(
      member, request, options_.timeouts.failover(),
      [](auto& stub, auto... rest) { stub.Heartbeat(std::move(rest)...); },
      [this, member, due = std::min(member->next_beat, begin)](const wire::HeartbeatReply& reply) {
        ++counts_.heartbeats;
        heartbeat_us_.push_back(absl::ToDoubleMicroseconds(absl::Now() - due));
        TakeBeat(member, reply);
      },
      &Fleet::Beat);
}

void Fleet::TakeBeat(const std::shared_ptr<Member>& member, const wire::HeartbeatReply& reply) {
  if (reply.leave()) {
    return Fail(member, absl::UnavailableError(absl::StrCat("the job has ended: ", reply.leave_reason())));
  }
  // Each keeps its own time, as real workers do.
  member->next_beat = NextDue(member->next_beat, options_.timeouts.heartbeat, absl::Now());
  Later(member, member->next_beat, &Fleet::Beat);
  if (member->server || member->live || reply.state() != wire::WORKER_LIVE) return;
  member->live = true;
  ++counts_.joined;
  AskForMap(member);
}

void Fleet::AskForMap(const std::shared_ptr<Member>& member) {
  wire::GetShardMapRequest request;
  request.set_job(member->job);
  Call<wire::GetShardMapReply>(
      member, request, options_.timeouts.startup,
      [](auto& stub, auto... rest) { stub.GetShardMap(std::move(rest)...); },
      [this, member](const wire::GetShardMapReply&) {
        ++counts_.others;
        AskForTask(member);
      },
      &Fleet::AskForMap);
}

void Fleet::AskForTask(const std::shared_ptr<Member>& member) {
  wire::NextTaskRequest request;
  request.set_job(member->job);
  request.set_worker(member->number);
  request.set_incarnation(member->incarnation);
  member->Train(absl::Now(), options_.step, options_.batch);
  request.set_range_done(member->range);
  request.set_samples_per_second(options_.batch / absl::ToDoubleSeconds(options_.step));
  *request.mutable_progress() = member->progress;
  Call<wire::NextTaskReply>(
      member, request, options_.timeouts.worker_dead(),
      [](auto& stub, auto... rest) { stub.NextTask(std::move(rest)...); },
      [this, member](const wire::NextTaskReply& reply) {
        ++counts_.tasks;
        TakeTask(member, reply);
      },
      &Fleet::AskForTask);
}

void Fleet::TakeTask(const std::shared_ptr<Member>& member, const wire::NextTaskReply& reply) {
  const absl::Time now = absl::Now();
  absl::Duration pause = absl::ZeroDuration();
  member->range = 0;
  switch (reply.task_case()) {
    case wire::NextTaskReply::kRange: {
      const uint64_t samples = reply.range().end() - reply.range().begin();
      const uint64_t steps = (samples + options_.batch - 1) / options_.batch;
      member->range = reply.range().range();
      member->range_began = now;
      member->range_samples = samples;
      pause = static_cast<int64_t>(steps) * options_.step;
      break;
    }
    case wire::NextTaskReply::kStandby:
      pause = absl::Milliseconds(reply.standby().retry_ms());
      break;
    default:
      return Fail(member, absl::InternalError(absl::StrCat("found the task ", reply.ShortDebugString())));
  }
  Later(member, now + pause, &Fleet::AskForTask);
}

void Fleet::ComeAnew(const std::shared_ptr<Member>& member) {
  ++counts_.expelled;
  member->gone = true;
  std::erase(members_, member);
  AddWorker(absl::Now());
}

void Fleet::KillOne() {
  const size_t first = options_.servers.size();
  if (members_.size() == first) return;
  const size_t victim = std::uniform_int_distribution<size_t>(first, members_.size() - 1)(random_);
  members_[victim]->gone = true;
  members_.erase(members_.begin() + static_cast<ptrdiff_t>(victim));
  ++counts_.died;
  AddWorker(absl::Now());
}

}  // namespace slackline::bench
