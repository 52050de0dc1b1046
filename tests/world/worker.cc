#include "tests/world/worker.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "worker/life/patience.h"
#include "worker/scheduler_link/scheduler_wire.h"

namespace slackline::world {
namespace {

constexpr double kLongSteps = 0.01;

}  // namespace

WorkerProcess::WorkerProcess(Scene& scene, std::string its_name, uint32_t pid)
    : scene_(scene),
      pid_(pid),
      step_(absl::Milliseconds(static_cast<int64_t>(scene.random.Between(60, 220)))),
      random_(scene.options.seed, 1000 + pid),
      member_("the scheduler", scheduler_return()) {
  life = scene.events.Begin();
  name = std::move(its_name);
  address = absl::StrCat(name, "/", pid);
  scene_.network.Listen(*this);
  Perform();
}

WorkerProcess::~WorkerProcess() = default;

void WorkerProcess::After(absl::Duration wait, std::function<void()> what) {
  scene_.events.After(wait, life, [this, token = token_, what = std::move(what)] {
    if (token == token_ && !ended_) what();
  });
}

template <typename Reply>
void WorkerProcess::Call(absl::Duration total, Serve<Reply> serve, Then<Reply> then) {
  Attempt<Reply>(scene_.events.Now() + total, std::make_shared<Backoff>(pid_), std::move(serve), std::move(then));
}

template <typename Reply>
void WorkerProcess::Attempt(absl::Time end, std::shared_ptr<Backoff> backoff, Serve<Reply> serve, Then<Reply> then) {
  const absl::Duration timeout = std::min(end - scene_.events.Now(), scene_.timeouts.worker_dead());
  scene_.network.Call<Reply>(
      *this, scene_.scheduler(), timeout, [serve](Host& host) { return serve(SchedulerAt(host)); },
      [this, token = token_, end, backoff, serve, then](const absl::StatusOr<Reply>& reply) {
        if (token != token_ || ended_) return;
        const absl::Duration wait = backoff->Next();
        if (reply.ok() || !rpc::IsRetryable(reply.status()) || scene_.events.Now() + wait >= end) return then(reply);
        After(wait, [this, end, backoff, serve, then] { Attempt<Reply>(end, backoff, serve, then); });
      });
}

absl::Duration WorkerProcess::scheduler_return() const {
  return std::max(absl::Seconds(scene_.job.durability().scheduler_return_s()), scene_.timeouts.out_of_reach());
}

// --- The course -------------------------------------------------------------------------------------------------

void WorkerProcess::Perform() {
  if (course_.goodbye()) CloseExchange();
  std::visit([this](const auto& act) { Perform(act); }, worker::Act(course_.act()));
}

void WorkerProcess::Done(const absl::Status& status) {
  if (!status.ok()) scene_.Tell(name, " ends its life: ", std::string(status.message()));
  course_.Done(status);
  Perform();
}

void WorkerProcess::Leave(const std::string& reason) {
  if (ended_) return;
  course_.End(absl::OkStatus(), reason);
  Perform();
}

void WorkerProcess::Perform(const worker::LeaveAct& leave) {
  if (std::exchange(ended_, true)) return;
  if (member_.beating()) {
    const wire::HeartbeatRequest request =
        worker::MakeGoodbye(member_.life(), TakeProgress(), worker::LeaveReason(leave), {});
    scene_.network.Call<wire::HeartbeatReply>(
        *this, scene_.scheduler(), scene_.timeouts.server_dead(),
        [request](Host& host) { return SchedulerAt(host).Heartbeat(request); }, [](const auto&) {});
  }
  scene_.ended(*this, leave.status);
}

// --- The line to the scheduler ----------------------------------------------------------------------------------

void WorkerProcess::Perform(const worker::JoinAct&) {
  ++token_;
  if (!course_.goodbye()) return Register();
  // Not from within what has just ended.
  After(absl::ZeroDuration(), [this] { Register(); });
}

void WorkerProcess::Register() {
  map_.Clear();
  worker::SchedulerLink::Options options;
  options.name = name;
  options.job_fingerprint = kFingerprint;
  options.train_samples = scene_.job.data().train_images_max();
  options.test_samples = 10;
  const uint64_t elements = kShardElements * scene_.job.cluster().servers() * scene_.job.cluster().shards_per_server();
  options.tensors = {{.name = "counts", .shape = {elements}}};
  const wire::RegisterWorkerRequest request = worker::MakeRegistration(options, pid_, member_.life());
  member_.StopBeating();
  scene_.counts.rejoins += sender().worker != WorkerId();
  Call<wire::RegisterWorkerReply>(
      scene_.timeouts.startup, [request](SchedulerProcess& scheduler) { return scheduler.RegisterWorker(request); },
      [this](const absl::StatusOr<wire::RegisterWorkerReply>& reply) {
        if (!reply.ok()) return Done(reply.status());
        member_.Registered(*reply, scene_.events.Now());
        board_.Reset(scene_.events.Now());
        scene_.Tell(name, " is worker ", reply->worker(), " incarnation ", reply->incarnation());
        After(scene_.timeouts.heartbeat, [this] { Beat(); });
        const absl::Duration server_return = worker::ServerReturn(scene_.job.durability(), scene_.timeouts);
        After(std::max(scene_.timeouts.startup, server_return), [this] {
          if (!member_.live()) Done(absl::DeadlineExceededError("was not made a member in time"));
        });
      });
}

worker::StepTotals WorkerProcess::TakeProgress() {
  board_.SetWaiting(exchange_ != nullptr && exchange_->waiting());
  return board_.Take(scene_.events.Now());
}

void WorkerProcess::Beat() {
  scene_.network.Call<wire::HeartbeatReply>(
      *this, scene_.scheduler(), scene_.timeouts.failover(),
      [request = worker::MakeHeartbeat(member_.life(), TakeProgress())](Host& host) {
        return SchedulerAt(host).Heartbeat(request);
      },
      [this, token = token_](const auto& reply) {
        if (token == token_ && !ended_) Digest(reply);
      });
}

void WorkerProcess::Digest(const absl::StatusOr<wire::HeartbeatReply>& reply) {
  using News = worker::MemberState::News;
  const News news = member_.Heard(sender().incarnation, reply, scene_.events.Now());
  if (news == News::kEnd) {
    const worker::MemberState::End end = *member_.end();
    return end.status.ok() ? Leave(end.reason) : Done(end.status);
  }
  After(scene_.timeouts.heartbeat, [this] { Beat(); });
  if (news == News::kLive) {
    scene_.Tell(name, " is live from clock ", member_.life().first_clock.value());
    scene_.ledger.Live(sender(), member_.life().first_clock);
    return FetchMap(/*enter=*/true);
  }
  if (reply.ok() && member_.KnowsOlderThan(Generation(reply->generation()))) FetchMap(/*enter=*/false);
}

void WorkerProcess::FetchMap(bool enter) {
  Call<wire::GetShardMapReply>(
      enter ? scene_.timeouts.startup : scene_.timeouts.heartbeat,
      [](SchedulerProcess& scheduler) { return scheduler.GetShardMap(worker::MakeMapRequest(kJob)); },
      [this, enter](const absl::StatusOr<wire::GetShardMapReply>& reply) {
        if (!reply.ok() && enter) return Done(reply.status());
        if (!reply.ok()) return;  // the next heartbeat makes another attempt
        if (map_.generation() < reply->generation()) map_ = *reply;
        member_.HasMap(Generation(reply->generation()));
        if (enter) return Done(absl::OkStatus());
        if (exchange_ != nullptr) exchange_->Remap(map_);
      });
}

// --- The loop ---------------------------------------------------------------------------------------------------

void WorkerProcess::CloseExchange() {
  if (exchange_ == nullptr) return;
  exchange_->Goodbye();
  // Its own callback may be what runs now.
  closed_.push_back(std::move(exchange_));
  scene_.events.After(absl::ZeroDuration(), life, [this] { closed_.clear(); });
}

void WorkerProcess::Perform(const worker::EnterAct&) {
  exchange_ =
      std::make_unique<Exchange>(scene_, *this, Exchange::Who{sender(), member_.life().first_clock, false}, map_);
  const auto pull = [this](const absl::Status& seeded) {
    if (!seeded.ok()) return Done(seeded);
    exchange_->Pull([this](const absl::Status& pulled) { Done(pulled); });
  };
  member_.life().send_seed ? exchange_->Seed(pull) : pull(absl::OkStatus());
}

void WorkerProcess::Perform(const worker::AskAct& ask) {
  const wire::NextTaskRequest request =
      worker::MakeTaskRequest(member_.life(), TakeProgress(), ask.done, 4 / absl::ToDoubleSeconds(step_));
  Call<wire::NextTaskReply>(
      scheduler_return(), [request](SchedulerProcess& scheduler) { return scheduler.NextTask(request); },
      [this](const absl::StatusOr<wire::NextTaskReply>& reply) {
        if (!reply.ok()) return Done(reply.status());
        course_.Got(*worker::FromWire(*reply));
        Perform();
      });
}

void WorkerProcess::Perform(const worker::StandbyWork& standby) {
  After(standby.retry, [this] { Done(absl::OkStatus()); });
}

void WorkerProcess::Perform(const worker::RangeWork& range) {
  range_ = range;
  trained_ = 0;
  Train();
}

void WorkerProcess::Train() {
  if (trained_ >= range_.end - range_.begin) return FinishSteps(0, [this] { Done(absl::OkStatus()); });
  // Now and then one takes so long that the others must be told whom they wait for.
  const absl::Duration longer = random_.Chance(kLongSteps) ? absl::Seconds(4) : absl::ZeroDuration();
  After(step_ * static_cast<double>(random_.Between(80, 140)) / 100 + longer, [this] { Computed(); });
}

void WorkerProcess::Computed() {
  trained_ += range_.batch_size;
  exchange_->Commit();
  FinishSteps(scene_.job.wire().window() - 1, [this] { Train(); });
}

void WorkerProcess::FinishSteps(size_t left, const std::function<void()>& then) {
  if (exchange_->steps_in_flight() <= left) return then();
  exchange_->Finish([this, left, then](const absl::Status& status) {
    if (!status.ok()) return Done(status);
    worker::StepFacts facts;
    static_cast<worker::StepReport&>(facts) = exchange_->TakeReport();
    facts.samples = range_.batch_size;
    facts.compute = step_;
    board_.Record(facts, scene_.events.Now());
    course_.Stepped();
    FinishSteps(left, then);
  });
}

void WorkerProcess::Perform(const worker::EvaluationWork& work) {
  if (!work.final) return Report(work);
  exchange_ = std::make_unique<Exchange>(scene_, *this, Exchange::Who{sender(), Clock64(), true}, map_);
  exchange_->Pull([this, work](const absl::Status& pulled) {
    if (!pulled.ok()) return Done(pulled);
    CloseExchange();
    Report(work);
  });
}

void WorkerProcess::Report(const worker::EvaluationWork& work) {
  worker::EvaluationResult result;
  result.work = work;
  result.loss = 1;
  result.metrics.samples = 10;
  const wire::EvaluationReport report = worker::ToWire(member_.life(), result);
  Call<wire::EvaluationReply>(
      scheduler_return(), [report](SchedulerProcess& scheduler) { return scheduler.ReportEvaluation(report); },
      [this, final = work.final](const absl::StatusOr<wire::EvaluationReply>& reply) {
        if (!reply.ok() || final) return Done(reply.status());
        exchange_->Pull([this](const absl::Status& pulled) { Done(pulled); });
      });
}

}  // namespace slackline::world
