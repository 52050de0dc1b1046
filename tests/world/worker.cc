#include "tests/world/worker.h"

#include <algorithm>
#include <utility>

namespace slackline::world {
namespace {

constexpr int kFruitlessLivesMax = 3;
constexpr double kLongSteps = 0.01;

}  // namespace

WorkerProcess::WorkerProcess(Scene& scene, std::string its_name, uint32_t pid)
    : scene_(scene),
      pid_(pid),
      step_(absl::Milliseconds(static_cast<int64_t>(scene.random.Between(60, 220)))),
      random_(scene.options.seed, 1000 + pid) {
  life = scene.events.Begin();
  name = std::move(its_name);
  address = absl::StrCat(name, "/", pid);
  scene_.network.Listen(*this);
  Join();
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
        if (reply.ok() || !IsRetryable(reply.status()) || scene_.events.Now() + wait >= end) return then(reply);
        After(wait, [this, end, backoff, serve, then] { Attempt<Reply>(end, backoff, serve, then); });
      });
}

absl::Duration WorkerProcess::scheduler_return() const {
  return std::max(absl::Seconds(scene_.job.durability().scheduler_return_s()), scene_.timeouts.out_of_reach());
}

// --- The line to the scheduler ----------------------------------------------------------------------------------

void WorkerProcess::Join() {
  ++token_;
  live_ = false;
  map_.Clear();
  steps_at_join_ = steps_;
  range_.reset();
  wire::RegisterWorkerRequest request;
  request.set_name(name);
  request.set_job_fingerprint(kFingerprint);
  request.set_train_samples(scene_.job.data().train_images_max());
  request.set_test_samples(10);
  request.set_pid(pid_);
  request.set_worker(self_.worker.value());
  request.set_incarnation(self_.incarnation.value());
  wire::TensorSpec& tensor = *request.add_tensors();
  tensor.set_name("counts");
  tensor.add_shape(kShardElements * scene_.job.cluster().servers() * scene_.job.cluster().shards_per_server());
  tensor.set_trained(true);
  scene_.counts.rejoins += self_.worker != WorkerId();
  Call<wire::RegisterWorkerReply>(
      scene_.timeouts.startup, [request](SchedulerProcess& scheduler) { return scheduler.RegisterWorker(request); },
      [this](const absl::StatusOr<wire::RegisterWorkerReply>& reply) {
        if (!reply.ok()) return EndLife(reply.status());
        self_ = {WorkerId(reply->worker()), Incarnation(reply->incarnation())};
        scene_.Tell(name, " is worker ", self_.worker.value(), " incarnation ", self_.incarnation.value());
        heard_ = moved_ = scene_.events.Now();
        After(scene_.timeouts.heartbeat, [this] { Beat(); });
        const absl::Duration join_max =
            std::max(scene_.timeouts.startup,
                     absl::Seconds(scene_.job.durability().server_return_s()) + 2 * scene_.timeouts.worker_dead());
        After(join_max, [this] {
          if (!live_) EndLife(absl::DeadlineExceededError("was not made a member in time"));
        });
      });
}

wire::WorkerProgress WorkerProcess::MakeProgress() const {
  wire::WorkerProgress progress;
  if (exchange_ != nullptr) {
    progress.set_clock(exchange_->clock().value());
    progress.set_pushes_applied(exchange_->applied());
    progress.set_pushes_discarded(exchange_->discarded());
    progress.set_pushes_lost(exchange_->lost());
    progress.set_waiting(exchange_->waiting());
  }
  progress.set_steps(steps_ - steps_at_join_);
  progress.set_idle_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(scene_.events.Now() - moved_)));
  progress.set_step_ms_median(absl::ToDoubleMilliseconds(step_));
  return progress;
}

wire::HeartbeatRequest WorkerProcess::MakeHeartbeat() const {
  wire::HeartbeatRequest request;
  request.set_job(kJob.value());
  request.set_role(wire::MEMBER_ROLE_WORKER);
  request.set_member(self_.worker.value());
  request.set_incarnation(self_.incarnation.value());
  *request.mutable_worker() = MakeProgress();
  return request;
}

void WorkerProcess::Beat() {
  scene_.network.Call<wire::HeartbeatReply>(
      *this, scene_.scheduler(), scene_.timeouts.failover(),
      [request = MakeHeartbeat()](Host& host) { return SchedulerAt(host).Heartbeat(request); },
      [this, token = token_](const auto& reply) {
        if (token == token_ && !ended_) Digest(reply);
      });
}

void WorkerProcess::Digest(const absl::StatusOr<wire::HeartbeatReply>& reply) {
  const absl::Time now = scene_.events.Now();
  if (!reply.ok()) {
    if (!IsRetryable(reply.status()) || now - heard_ >= scheduler_return()) return EndLife(reply.status());
    return After(scene_.timeouts.heartbeat, [this] { Beat(); });
  }
  heard_ = now;
  After(scene_.timeouts.heartbeat, [this] { Beat(); });
  send_seed_ = reply->send_seed();
  if (reply->leave()) return Leave("the job has ended");
  if (reply->state() == wire::WORKER_LIVE && !std::exchange(live_, true)) {
    first_clock_ = Clock64(reply->first_clock());
    scene_.Tell(name, " is live from clock ", first_clock_.value());
    scene_.ledger.Live(self_, first_clock_);
    return FetchMap(/*enter=*/true);
  }
  if (live_ && map_.generation() != 0 && map_.generation() < reply->generation()) FetchMap(/*enter=*/false);
}

void WorkerProcess::FetchMap(bool enter) {
  wire::GetShardMapRequest request;
  request.set_job(kJob.value());
  Call<wire::GetShardMapReply>(
      enter ? scene_.timeouts.startup : scene_.timeouts.heartbeat,
      [request](SchedulerProcess& scheduler) { return scheduler.GetShardMap(request); },
      [this, enter](const absl::StatusOr<wire::GetShardMapReply>& reply) {
        if (!reply.ok() && enter) return EndLife(reply.status());
        if (!reply.ok()) return;  // the next heartbeat makes another attempt
        if (map_.generation() < reply->generation()) map_ = *reply;
        if (enter) return Enter();
        if (exchange_ != nullptr) exchange_->Remap(map_);
      });
}

void WorkerProcess::Leave(const std::string& reason) {
  if (ended_) return;
  CloseExchange();
  if (self_.worker != WorkerId()) {
    wire::HeartbeatRequest request = MakeHeartbeat();
    request.set_leaving(true);
    request.set_leaving_reason(reason);
    scene_.network.Call<wire::HeartbeatReply>(
        *this, scene_.scheduler(), scene_.timeouts.server_dead(),
        [request](Host& host) { return SchedulerAt(host).Heartbeat(request); }, [](const auto&) {});
  }
  End(absl::OkStatus());
}

void WorkerProcess::EndLife(const absl::Status& status) {
  scene_.Tell(name, " ends its life: ", std::string(status.message()));
  CloseExchange();
  if (!absl::IsFailedPrecondition(status)) return End(status);
  fruitless_ = steps_ == steps_at_join_ ? fruitless_ + 1 : 0;
  if (fruitless_ > kFruitlessLivesMax) return End(status);
  ++token_;
  // Not from within what has just ended.
  After(absl::ZeroDuration(), [this] { Join(); });
}

void WorkerProcess::End(const absl::Status& status) {
  if (std::exchange(ended_, true)) return;
  scene_.ended(*this, status);
}

// --- The loop ---------------------------------------------------------------------------------------------------

void WorkerProcess::CloseExchange() {
  if (exchange_ == nullptr) return;
  exchange_->Goodbye();
  // Its own callback may be what runs now.
  closed_.push_back(std::move(exchange_));
  scene_.events.After(absl::ZeroDuration(), life, [this] { closed_.clear(); });
}

void WorkerProcess::Enter() {
  exchange_ = std::make_unique<Exchange>(scene_, *this, Exchange::Who{self_, first_clock_, false}, map_);
  const auto pull = [this](const absl::Status& seeded) {
    if (!seeded.ok()) return EndLife(seeded);
    exchange_->Pull([this](const absl::Status& pulled) { pulled.ok() ? NextWork(0) : EndLife(pulled); });
  };
  send_seed_ ? exchange_->Seed(pull) : pull(absl::OkStatus());
}

void WorkerProcess::NextWork(uint64_t range_done) {
  wire::NextTaskRequest request;
  request.set_job(kJob.value());
  request.set_worker(self_.worker.value());
  request.set_incarnation(self_.incarnation.value());
  request.set_range_done(range_done);
  request.set_samples_per_second(4 / absl::ToDoubleSeconds(step_));
  *request.mutable_progress() = MakeProgress();
  Call<wire::NextTaskReply>(
      scheduler_return(), [request](SchedulerProcess& scheduler) { return scheduler.NextTask(request); },
      [this](const absl::StatusOr<wire::NextTaskReply>& reply) {
        moved_ = scene_.events.Now();
        reply.ok() ? Work(*reply) : EndLife(reply.status());
      });
}

void WorkerProcess::Work(const wire::NextTaskReply& work) {
  if (work.has_range()) {
    if (exchange_ == nullptr) return EndLife(absl::FailedPreconditionError("there is work for a worker on standby"));
    range_ = work.range();
    trained_ = 0;
    return Train();
  }
  if (work.has_evaluate()) return Evaluate(work.evaluate());
  if (work.has_leave()) return Leave(work.leave().reason());
  CloseExchange();
  After(absl::Milliseconds(work.standby().retry_ms()), [this] { NextWork(0); });
}

void WorkerProcess::Train() {
  if (trained_ >= range_->end() - range_->begin()) {
    return FinishSteps(0, [this] { NextWork(range_->range()); });
  }
  // Now and then one takes so long that the others must be told whom they wait for.
  const absl::Duration longer = random_.Chance(kLongSteps) ? absl::Seconds(4) : absl::ZeroDuration();
  After(step_ * static_cast<double>(random_.Between(80, 140)) / 100 + longer, [this] { Computed(); });
}

void WorkerProcess::Computed() {
  trained_ += range_->batch_size();
  samples_ += range_->batch_size();
  exchange_->Commit();
  FinishSteps(scene_.job.wire().window() - 1, [this] { Train(); });
}

void WorkerProcess::FinishSteps(size_t left, const std::function<void()>& then) {
  if (exchange_->steps_in_flight() <= left) return then();
  exchange_->Finish([this, left, then](const absl::Status& status) {
    if (!status.ok()) return EndLife(status);
    ++steps_;
    moved_ = scene_.events.Now();
    FinishSteps(left, then);
  });
}

void WorkerProcess::Evaluate(const wire::EvaluateTask& task) {
  CloseExchange();
  exchange_ = std::make_unique<Exchange>(scene_, *this, Exchange::Who{self_, Clock64(), true}, map_);
  exchange_->Pull([this, task](const absl::Status& pulled) {
    if (!pulled.ok()) return EndLife(pulled);
    CloseExchange();
    wire::EvaluationReport report;
    report.set_job(kJob.value());
    report.set_worker(self_.worker.value());
    report.set_incarnation(self_.incarnation.value());
    report.set_epoch(task.epoch());
    report.set_final(task.final());
    report.set_at_samples(task.at_samples());
    report.set_samples(10);
    report.set_loss(1);
    Call<wire::EvaluationReply>(
        scheduler_return(), [report](SchedulerProcess& scheduler) { return scheduler.ReportEvaluation(report); },
        [this](const absl::StatusOr<wire::EvaluationReply>& reply) {
          reply.ok() ? NextWork(0) : EndLife(reply.status());
        });
  });
}

}  // namespace slackline::world
