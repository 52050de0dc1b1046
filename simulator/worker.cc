#include "simulator/worker.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"
#include "common/job/job_kinds.h"
#include "common/time/computing_watch.h"
#include "simulator/poison.h"
#include "worker/local_training/local_images.h"
#include "worker/scheduler_link/scheduler_wire.h"

namespace slackline::simulator {
namespace {

// Process ids, which tell the scheduler one process of a name from the next.
constexpr uint32_t kProcessesMax = 1000;
// Until it is let in, a worker asks so often: time that it idles until its next heartbeat is no time of training.
constexpr absl::Duration kJoining = absl::Milliseconds(1);

}  // namespace

Worker::Worker(World& world, const WorkerPlan& plan, uint32_t number, std::vector<std::unique_ptr<Server>>& servers)
    : world_(world),
      plan_(plan),
      number_(number),
      servers_(servers),
      endpoint_(world.network.Add(plan.link)),
      pace_(plan_, world.cost, world.job.seed(), number),
      noise_(world.job.seed(), number, kNoise),
      deaths_(world.job.seed(), number, kDeaths),
      member_(Newcomer()) {}

void Worker::Plan() {
  world_.queue.At(plan_.joins, [this] { Start(); });
  if (plan_.dies_every > absl::ZeroDuration()) PlanDeath(plan_.joins);
  const absl::Time ends = std::min(plan_.leaves, plan_.dies);
  if (ends == absl::InfiniteFuture()) return;
  world_.queue.At(ends, [this] { Stop(/*in_good_order=*/plan_.leaves < plan_.dies); });
  if (plan_.returns_after != absl::InfiniteDuration()) {
    world_.queue.At(ends + plan_.returns_after, [this] { Start(); });
  }
}

void Worker::PlanDeath(absl::Time start) {
  const absl::Time dies = start + plan_.dies_every * deaths_.Exponential(1);
  world_.queue.At(dies, [this] { Stop(/*in_good_order=*/false); });
  if (plan_.returns_after == absl::InfiniteDuration()) return;
  const absl::Time returns = dies + plan_.returns_after;
  world_.queue.At(returns, [this, returns] {
    Start();
    if (running_) PlanDeath(returns);
  });
}

void Worker::After(absl::Duration delay, std::function<void()> event) {
  world_.queue.After(delay, [this, life = life_number_, event = std::move(event)] {
    if (life == life_number_) event();
  });
}

void Worker::AfterLatency(std::function<void()> event) {
  After(world_.network.Latency(endpoint_, world_.scheduler_end), std::move(event));
}

template <typename Call, typename Then>
void Worker::Ask(Call call, Then then) {
  AfterLatency([this, call = std::move(call), then = std::move(then)] {
    ++world_.scheduler_calls;
    auto reply = call();
    AfterLatency([then, reply = std::move(reply)] { then(reply); });
  });
}

// --- A life -----------------------------------------------------------------------------------------------------

worker::MemberState Worker::Newcomer() const { return {"the scheduler", world_.timeouts.out_of_reach()}; }

void Worker::Start() {
  if (world_.controller.state() != wire::JOB_STARTING && world_.controller.state() != wire::JOB_TRAINING) return;
  ++processes_;
  running_ = true;
  member_ = Newcomer();
  course_ = {};
  Perform();
}

void Worker::Stop(bool in_good_order) {
  if (!running_) return;
  if (in_good_order) {
    course_.End(absl::OkStatus(), "told to stop");
    return Perform();
  }
  running_ = false;
  ++life_number_;
  CloseStreams();
}

void Worker::Perform() {
  if (course_.goodbye()) CloseStreams();
  std::visit([this](const auto& act) { Perform(act); }, worker::Act(course_.act()));
}

void Worker::Done(const absl::Status& status) {
  course_.Done(status);
  Perform();
}

void Worker::Perform(const worker::JoinAct&) {
  ++life_number_;
  if (!course_.goodbye()) return Register();
  // A process that has stopped does not join either.
  After(pace_.LeftOfPause(world_.queue.Now()), [this] { Register(); });
}

void Worker::Register() {
  worker::SchedulerLink::Options options;
  options.name = plan_.name;
  options.job_fingerprint = Fingerprint(world_.job);
  const Learned& learned = world_.computation.learned();
  options.tensors = learned.tensors;
  options.train_samples = learned.train_samples;
  options.test_samples = learned.test_samples;
  const wire::RegisterWorkerRequest request =
      worker::MakeRegistration(options, number_ * kProcessesMax + processes_ % kProcessesMax, member_.life());
  member_.StopBeating();
  range_.reset();
  local_state_.reset();
  begun_.clear();
  computing_ = false;
  evaluating_ = false;
  evaluated_.clear();
  pending_ = {};
  blocked_since_.reset();
  Ask([this, request] { return world_.controller.RegisterWorker(request); },
      [this](const absl::StatusOr<wire::RegisterWorkerReply>& reply) {
        // Its earlier process may still live, for all the scheduler knows.
        if (absl::IsUnavailable(reply.status())) return After(world_.timeouts.heartbeat, [this] { Register(); });
        if (!reply.ok()) return Done(reply.status());
        member_.Registered(*reply, world_.queue.Now());
        board_.Reset(world_.queue.Now());
        Beat();
      });
}

void Worker::Beat() {
  After(member_.live() ? world_.timeouts.heartbeat : std::min(world_.timeouts.heartbeat, kJoining), [this] { Beat(); });
  if (plan_.pause_silent && pace_.LeftOfPause(world_.queue.Now()) > absl::ZeroDuration()) return;
  NoteBatches();
  const wire::HeartbeatRequest request = worker::MakeHeartbeat(member_.life(), board_.Take(world_.queue.Now()));
  Ask([this, request] { return world_.controller.Heartbeat(request); },
      [this](const absl::StatusOr<wire::HeartbeatReply>& reply) { Hear(reply); });
}

void Worker::Hear(const absl::StatusOr<wire::HeartbeatReply>& reply) {
  switch (member_.Heard(member_.life().incarnation, reply, world_.queue.Now())) {
    case worker::MemberState::News::kNone:
      return;
    case worker::MemberState::News::kLive:
      return GetMap();
    case worker::MemberState::News::kEnd:
      const worker::MemberState::End end = *member_.end();
      if (!end.status.ok()) return Done(end.status);
      course_.End(end.status, end.reason);
      return Perform();
  }
}

void Worker::GetMap() {
  ++world_.scheduler_calls;
  const absl::StatusOr<wire::GetShardMapReply> map =
      world_.controller.GetShardMap(worker::MakeMapRequest(member_.life().job));
  if (!map.ok()) return Done(map.status());
  server_of_.assign(static_cast<size_t>(map->shards_size()), 0);
  for (const wire::ShardSpec& spec : map->shards()) server_of_[spec.shard()] = spec.server() - 1;
  Done(absl::OkStatus());
}

void Worker::Perform(const worker::EnterAct&) {
  held_.assign(server_of_.size(), {});
  session_.emplace(server_of_.size(), member_.life().first_clock);
  for (uint32_t i = 0; i < server_of_.size(); ++i) session_->Connected(ShardId(i));
  pulling_ = true;
  SendAll(session_->BeginPull(), /*hello=*/true, nullptr);
}

void Worker::CloseStreams() {
  session_.reset();
  const ps::Sender sender = this->sender();
  for (const std::unique_ptr<Server>& server : servers_) {
    // Not an event of this life: the other end notices.
    world_.queue.After(world_.network.Latency(endpoint_, server->endpoint()),
                       [server = server.get(), sender] { server->Disconnected(sender); });
  }
}

void Worker::Perform(const worker::LeaveAct& leave) {
  running_ = false;
  ++life_number_;
  // A worker that is no longer a member leaves the job to the others.
  if (!leave.status.ok() && !absl::IsFailedPrecondition(leave.status)) world_.Fail(plan_.name, leave.status);
  if (!member_.beating()) return;
  member_.StopBeating();
  const wire::HeartbeatRequest request =
      worker::MakeGoodbye(member_.life(), board_.Take(world_.queue.Now()), worker::LeaveReason(leave), {});
  AfterLatency([this, request] {
    ++world_.scheduler_calls;
    (void)world_.controller.Heartbeat(request);
  });
}

// --- Work -------------------------------------------------------------------------------------------------------

void Worker::Perform(const worker::AskAct& ask) {
  const wire::NextTaskRequest request =
      worker::MakeTaskRequest(member_.life(), board_.Take(world_.queue.Now()), ask.done, samples_per_second_);
  Ask([this, request] { return world_.controller.NextTask(request); },
      [this](const absl::StatusOr<wire::NextTaskReply>& reply) {
        if (absl::IsUnavailable(reply.status())) return After(world_.timeouts.heartbeat, [this] { Perform(); });
        if (!reply.ok()) return Done(reply.status());
        const absl::StatusOr<worker::Work> work = worker::FromWire(*reply);
        if (!work.ok()) return Done(work.status());
        course_.Got(*work);
        Perform();
      });
}

void Worker::Perform(const worker::StandbyWork& standby) {
  After(standby.retry, [this] { Done(absl::OkStatus()); });
}

uint32_t Worker::BatchSizeOf(const worker::RangeWork& work) const {
  return work.batch_size > 0 ? work.batch_size : world_.job.training().batch_size();
}

void Worker::Perform(const worker::RangeWork& work) {
  const std::vector<uint32_t>& order = world_.EpochOrder(work.epoch);
  RangeInWork& range = range_.emplace();
  range.work = work;
  const auto images = absl::MakeConstSpan(order).subspan(work.begin, work.end - work.begin);
  range.images = world_.local.on() ? worker::LocalImages(world_.local,
                                                         {.worker = member_.life().worker,
                                                          .range = work.range,
                                                          .batch_size = BatchSizeOf(work),
                                                          .seed = world_.job.seed(),
                                                          .train_images = order.size(),
                                                          .file_starts = world_.computation.learned().file_starts},
                                                         images)
                                   : std::vector<uint32_t>(images.begin(), images.end());
  range.began = world_.queue.Now();
  Continue();
}

void Worker::Perform(const worker::EvaluationWork& work) {
  const auto samples = static_cast<double>(world_.computation.learned().test_samples);
  evaluating_ = true;
  const absl::Duration took = world_.cost.per_test_sample * (samples * plan_.slowdown);
  // Those of now, whatever the others do meanwhile. Not in the event, as for a step.
  evaluated_.clear();
  for (size_t i = 0; i < held_.size(); ++i) {
    const ShardId shard(static_cast<uint32_t>(i));
    const bool there = work.final || world_.job.optimizer().ema() > 0 || PredictsWeights(world_.job);
    evaluated_.push_back(there ? servers_[server_of_[i]]->Evaluated(shard) : held_[i].front().weights);
  }
  After(took, [this, work, took] {
    evaluating_ = false;
    const Weights weights = std::exchange(evaluated_, {});
    const absl::StatusOr<worker::EvaluationResult> result = world_.computation.Evaluate(weights, work);
    if (!result.ok()) return world_.Fail(plan_.name, result.status());
    wire::EvaluationReport report = worker::ToWire(member_.life(), *result);
    report.set_seconds(absl::ToDoubleSeconds(took));
    Ask([this, report] { return world_.controller.ReportEvaluation(report); },
        [this, work](const absl::Status& status) {
          if (!status.ok() || work.final) return Done(status);
          pulling_ = true;
          SendAll(session_->BeginPull(), /*hello=*/false, nullptr);
        });
  });
}

void Worker::Continue() {
  if (!range_ || computing_) return;
  const bool more = range_->next < range_->images.size();
  if (more ? begun_.size() < world_.job.wire().window() : begun_.empty()) {
    blocked_since_.reset();
    board_.SetWaiting(false);
    if (more) return Compute();
    const double seconds = absl::ToDoubleSeconds(world_.queue.Now() - range_->began);
    const worker::RangeWork& work = range_->work;
    if (seconds > 0) samples_per_second_ = static_cast<double>(work.end - work.begin) / seconds;
    range_.reset();
    return Done(absl::OkStatus());
  }
  if (!blocked_since_) blocked_since_ = world_.queue.Now();
  board_.SetWaiting(true);
}

void Worker::Compute() {
  const uint32_t batch = BatchSizeOf(range_->work);
  const size_t left = range_->images.size() - range_->next;
  const size_t count = world_.local.on() ? worker::LocalRoundSamples(world_.local, batch, left)
                                         : std::min<size_t>(left, size_t{batch} * world_.job.training().accumulate());
  const auto first = range_->images.begin() + static_cast<int64_t>(range_->next);
  range_->next += count;
  Weights weights;
  for (const std::vector<Held>& held : held_) weights.push_back(held.front().weights);
  computing_ = true;
  // Not in the event, which stays in the queue when this life ends before.
  pending_ = world_.computation.Begin({.weights = std::move(weights),
                                       .images = {first, first + static_cast<int64_t>(count)},
                                       .epoch = range_->work.epoch,
                                       .batch_size = batch,
                                       .local = world_.local,
                                       .local_state = std::move(local_state_)});
  const uint64_t batches = (count + batch - 1) / batch;
  const absl::Duration takes = pace_.Step({.samples = count, .batches = batches}, world_.queue.Now());
  computing_since_ = world_.queue.Now();
  batch_takes_ = takes / static_cast<double>(batches);
  After(takes, [this, takes] { Push(takes); });
}

void Worker::NoteBatches() {
  const absl::Time now = world_.queue.Now();
  if (evaluating_) board_.Alive(now);
  if (!computing_ || batch_takes_ <= absl::ZeroDuration()) return;
  const absl::Duration past = now - computing_since_;
  if (past >= batch_takes_) board_.Alive(computing_since_ + absl::Floor(past, batch_takes_));
  if (pace_.LeftOfPause(now) > absl::ZeroDuration()) return;  // it uses no processor
  board_.Computes(now, ComputingWatch::kPatience * world_.timeouts.stall);
}

void Worker::Push(absl::Duration took) {
  computing_ = false;
  absl::StatusOr<std::shared_ptr<const Gradient>> gradient = pending_.get();
  if (!gradient.ok()) {
    return world_.Fail(absl::StrCat(plan_.name, ", step ", session_->sequence().value() + 1), gradient.status());
  }
  if (plan_.poison != job::Poison::NONE && (*gradient)->push != nullptr) {
    gradient = Poisoned(**gradient, plan_.poison, world_.computation.learned(), noise_);
  }
  local_state_ = (*gradient)->local_state;
  const worker::StepResult& result = (*gradient)->result;
  SendAll(session_->BeginStep(), /*hello=*/false, *gradient);
  Step& step = begun_.emplace_back();
  step.sequence = session_->sequence();
  step.facts.samples = result.samples;
  step.facts.loss = result.loss;
  step.facts.correct = result.correct;
  step.facts.unjudged = world_.computation.learned().counts_correct ? 0 : result.samples;
  step.facts.gradient_norm = (*gradient)->norm;
  step.facts.compute = took;
  Continue();
}

void Worker::SendAll(const std::vector<worker::Session::Send>& asks, bool hello,
                     std::shared_ptr<const Gradient> gradient) {
  std::vector<Message> messages(servers_.size());
  for (const worker::Session::Send& ask : asks) messages[server_of_[ask.shard.value()]].asks.push_back(ask);
  for (size_t i = 0; i < messages.size(); ++i) {
    Message& message = messages[i];
    if (message.asks.empty()) continue;
    const worker::WorkerMembership& life = member_.life();
    message.sender = sender();
    if (hello) message.hello = ps::HelloEvent{message.sender, life.first_clock, life.first_clock};
    message.seed = hello && life.send_seed;
    message.peer = this;
    message.gradient = gradient;
    servers_[i]->Send(std::move(message));
  }
}

void Worker::Deliver(const std::vector<ShardReply>& replies) {
  if (replies.front().to != sender() || !session_) return;
  for (const ShardReply& reply : replies) {
    if (!reply.refused.ok()) return Done(reply.refused);
    Account(reply);
  }
  FinishSteps();
}

void Worker::Account(const ShardReply& reply) {
  const Server& server = *servers_[server_of_[reply.shard.value()]];
  if (reply.served) {
    pulled_bytes_ += server.PullBytes(reply.shard);
    for (const Clock64 clock : session_->Pulled(reply.shard, reply.served->id, reply.served->version)) {
      held_[reply.shard.value()].push_back({clock, reply.served->weights});
    }
  }
  if (!reply.answer) return;
  const ps::Answer& answer = *reply.answer;
  const bool applied = answer.outcome == ps::Outcome::kApplied;
  const auto outcome = applied ? worker::Session::Outcome::kApplied : worker::Session::Outcome::kDiscarded;
  const absl::StatusOr<bool> first = session_->Answered(reply.shard, answer.sequence, outcome);
  if (!first.ok()) return world_.Fail(plan_.name, first.status());
  for (Step& step : begun_) {
    if (!*first || step.sequence != answer.sequence) continue;
    worker::StepFacts& facts = step.facts;
    ++(applied ? facts.shards_applied : facts.shards_discarded);
    facts.pushed_bytes += server.PushBytes(reply.shard);
    if (answer.reason == ps::DiscardReason::kOutlier) ++facts.shards_quarantined;
    if (applied) {
      facts.staleness_sum += answer.staleness;
      facts.staleness.Add(answer.staleness);
    }
    facts.staleness_max = std::max(facts.staleness_max, answer.staleness);
    const uint64_t clock = answer.sequence.value();
    facts.slack = std::max(facts.slack, clock - std::min(clock, reply.clock_min.value()));
  }
}

void Worker::FinishSteps() {
  if (pulling_ && session_->idle()) {
    pulling_ = false;
    TakeWeights(session_->sequence());
    return Done(absl::OkStatus());
  }
  bool finished = false;
  while (!begun_.empty() && session_->finished() >= begun_.front().sequence) {
    Step& step = begun_.front();
    step.facts.clock = step.sequence;
    step.facts.pulled_bytes = std::exchange(pulled_bytes_, 0);
    if (blocked_since_)
      step.facts.wait = world_.queue.Now() - std::exchange(blocked_since_, world_.queue.Now()).value();
    board_.Record(step.facts, world_.queue.Now());
    course_.Stepped();
    TakeWeights(step.sequence);
    begun_.pop_front();
    finished = true;
  }
  if (finished) Continue();
}

void Worker::TakeWeights(Clock64 clock) {
  session_->Take(clock);
  for (std::vector<Held>& held : held_) {
    while (held.size() > 1 && held[1].clock <= clock) held.erase(held.begin());
  }
}

}  // namespace slackline::simulator
