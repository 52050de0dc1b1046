#include "ps/consistency/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace slackline::ps {
Engine::Engine(const EngineConfig& config) : config_(config), version_{Lineage(1), 0} {
  SLACKLINE_CHECK(config_.samples_nominal > 0);
  SLACKLINE_CHECK(config_.window_max > 0);
}

Engine::Engine(const EngineConfig& config, const EngineState& restored) : Engine(config) {
  version_ = {restored.version.lineage.Next(), restored.version.number};
  samples_applied_ = restored.samples_applied;
  clock_floor_ = restored.clock_floor;
  for (const WorkerClock& worker : restored.workers) restored_[worker.sender] = worker;
}

// --- Membership -------------------------------------------------------------------------------------------------

absl::Status Engine::SetMembers(Epoch epoch, absl::Span<const MemberEntry> members, Actions& actions) {
  if (epoch < epoch_) {
    return absl::FailedPreconditionError(
        absl::StrCat("members epoch is ", epoch.value(), ", installed is ", epoch_.value()));
  }
  epoch_ = epoch;
  const Clock64 first = clock_min();
  std::map<WorkerId, Worker> next;
  for (const MemberEntry& member : members) {
    Worker worker;
    worker.incarnation = member.sender.incarnation;
    worker.clock = first;
    if (auto known = workers_.find(member.sender.worker);
        known != workers_.end() && known->second.incarnation == member.sender.incarnation) {
      worker = std::move(known->second);
      workers_.erase(known);
    } else if (auto old = restored_.find(member.sender); old != restored_.end()) {
      worker.clock = old->second.clock;
      worker.answers = old->second.answers;
    }
    worker.name = member.name;
    next[member.sender.worker] = std::move(worker);
  }
  restored_.clear();
  for (auto& [id, gone] : workers_) DropHeld({id, gone.incarnation}, gone, actions);
  workers_ = std::move(next);
  // The floor stays where the members were, so that whoever comes into an empty set goes on from there.
  clock_floor_ = std::max(clock_floor_, workers_.empty() ? first : clock_min());
  Settle(actions);
  return absl::OkStatus();
}

void Engine::DropHeld(const Sender& sender, Worker& worker, Actions& actions) {
  for (const auto& [sequence, held] : worker.held) actions.push_back(DropAction{{sender, sequence}});
  worker.held.clear();
}

Clock64 Engine::clock_min() const {
  if (workers_.empty()) return clock_floor_;
  return Slowest().second->clock;
}

// By clock; of equal clocks one whose next push has not come, for it is awaited.
std::pair<WorkerId, const Engine::Worker*> Engine::Slowest() const {
  auto rank = [](const Worker& worker) { return std::pair(worker.clock, worker.held.size()); };
  auto slowest = std::min_element(workers_.begin(), workers_.end(),
                                  [&](const auto& a, const auto& b) { return rank(a.second) < rank(b.second); });
  return {slowest->first, &slowest->second};
}

std::optional<Clock64> Engine::clock(WorkerId worker) const {
  auto found = workers_.find(worker);
  if (found == workers_.end()) return std::nullopt;
  return found->second.clock;
}

const Engine::Worker* Engine::Find(const Sender& sender) const {
  auto found = workers_.find(sender.worker);
  if (found == workers_.end() || found->second.incarnation != sender.incarnation) return nullptr;
  return &found->second;
}

Engine::Worker* Engine::Find(const Sender& sender) {
  return const_cast<Worker*>(static_cast<const Engine*>(this)->Find(sender));
}

absl::Status Engine::Unknown(const Sender& sender) const {
  auto found = workers_.find(sender.worker);
  if (found == workers_.end()) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", sender.worker.value(), " incarnation ",
                                                      sender.incarnation.value(), " is not a member (epoch ",
                                                      epoch_.value(), ")"));
  }
  return absl::FailedPreconditionError(absl::StrCat("worker ", sender.worker.value(), " says incarnation ",
                                                    sender.incarnation.value(), ", the member is incarnation ",
                                                    found->second.incarnation.value()));
}

// --- Streams ----------------------------------------------------------------------------------------------------

absl::Status Engine::Hello(const HelloEvent& hello, Actions& actions) {
  Worker* worker = Find(hello.sender);
  if (worker == nullptr) return Unknown(hello.sender);
  worker->pulls.clear();
  const Sequence known = worker->clock;
  const Sequence claimed = std::max(hello.first_clock, hello.last_answered);
  if (claimed <= known || bugs_.no_fast_forward) return absl::OkStatus();
  // The clock never waits for the past. Up to first_clock there were no pushes of this incarnation.
  worker->clock = claimed;
  for (auto held = worker->held.begin(); held != worker->held.end() && held->first <= claimed;) {
    actions.push_back(DropAction{{hello.sender, held->first}});
    held = worker->held.erase(held);
  }
  const Sequence lost_from = std::max(known, hello.first_clock);
  if (claimed > lost_from) {
    worker->answers.clear();
    actions.push_back(LostAction{hello.sender, lost_from, claimed});
  }
  Settle(actions);
  return absl::OkStatus();
}

void Engine::Disconnected(const Sender& sender) {
  if (Worker* worker = Find(sender)) worker->pulls.clear();
}

// --- Pushes -----------------------------------------------------------------------------------------------------

Engine::Admission Engine::Admit(const Sender& sender, Sequence sequence) const {
  const Worker* worker = Find(sender);
  if (worker == nullptr) return Admission::kRefuse;
  if (sequence <= worker->clock) return Admission::kIgnore;
  if (worker->held.contains(sequence)) return Admission::kIgnore;
  const Sequence last = worker->held.empty() ? worker->clock : worker->held.rbegin()->first;
  return sequence == last.Next() ? Admission::kStage : Admission::kRefuse;
}

void Engine::Push(const PushEvent& push, Actions& actions) {
  auto refuse = [&](absl::Status status, Sequence expected = Sequence()) {
    actions.push_back(RefuseAction{push.sender, push.sequence, PullId(), std::move(status), expected});
  };
  Worker* worker = Find(push.sender);
  if (worker == nullptr) return refuse(Unknown(push.sender));
  if (push.sequence <= worker->clock) {
    auto stored = std::find_if(worker->answers.begin(), worker->answers.end(),
                               [&](const Answer& answer) { return answer.sequence == push.sequence; });
    if (stored == worker->answers.end()) {
      return refuse(
          absl::OutOfRangeError(absl::StrCat("push ", push.sequence.value(), " was answered long ago: last is ",
                                             worker->clock.value(), ", answers kept are ", worker->answers.size())),
          worker->clock.Next());
    }
    actions.push_back(AnswerAction{push.sender, *stored, /*repeated=*/true});
    return;
  }
  if (worker->held.contains(push.sequence)) return;  // its answer comes when its step does
  const Sequence expected = (worker->held.empty() ? worker->clock : worker->held.rbegin()->first).Next();
  if (push.sequence != expected) {
    return refuse(absl::FailedPreconditionError(
                      absl::StrCat("push has sequence ", push.sequence.value(), ", expected is ", expected.value())),
                  expected);
  }
  if (push.samples == 0) return refuse(absl::InvalidArgumentError("push has 0 samples, at least 1 is allowed"));
  const bool future = push.base.lineage == version_.lineage && push.base.number > version_.number;
  if (push.base.lineage > version_.lineage || future) {
    return refuse(absl::InvalidArgumentError(absl::StrCat("push was computed from version ", ToString(push.base),
                                                          ", the shard is at ", ToString(version_))));
  }
  const bool old_lineage = push.base.lineage != version_.lineage && !bugs_.ignore_lineage;
  if (old_lineage && !worker->held.empty()) {
    return refuse(absl::InvalidArgumentError(
        absl::StrCat("push ", push.sequence.value(), " was computed from version ", ToString(push.base),
                     ", an earlier push of this worker from the shard's lineage ", version_.lineage.value())));
  }
  if (old_lineage) {
    actions.push_back(DropAction{{push.sender, push.sequence}});
    Finish(push.sender, *worker, {push.sequence, Outcome::kDiscarded, DiscardReason::kLineage, version_, 0}, actions);
  } else if (config_.mode == Mode::kBsp) {
    worker->held[push.sequence] = {push.base, push.samples};
  } else {
    ApplyAlone(push.sender, *worker, push, actions);
  }
  Settle(actions);
}

uint64_t Engine::Staleness(const Version& base) const {
  if (base.lineage != version_.lineage || base.number > version_.number) return 0;
  return version_.number - base.number;
}

void Engine::ApplyAlone(const Sender& sender, Worker& worker, const PushEvent& push, Actions& actions) {
  const uint64_t staleness = Staleness(push.base);
  ++version_.number;
  samples_applied_ += push.samples;
  ApplyAction apply;
  apply.parts.push_back({{sender, push.sequence}, 1.0, push.samples});
  apply.lr_scale = static_cast<double>(push.samples) / static_cast<double>(config_.samples_nominal);
  apply.average_rate = 1.0 / static_cast<double>(workers_.size());
  apply.samples = push.samples;
  apply.version = version_;
  actions.push_back(std::move(apply));
  Finish(sender, worker, {push.sequence, Outcome::kApplied, DiscardReason::kNone, version_, staleness}, actions);
}

void Engine::Finish(const Sender& sender, Worker& worker, const Answer& answer, Actions& actions) {
  SLACKLINE_CHECK(answer.sequence == worker.clock.Next());
  worker.clock = answer.sequence;
  worker.answers.push_back(answer);
  if (worker.answers.size() > config_.window_max) worker.answers.pop_front();
  actions.push_back(AnswerAction{sender, answer, /*repeated=*/false});
}

// The step after the slowest clock is ready when every live worker has pushed it or is past it already.
bool Engine::SettleBspStep(Actions& actions) {
  if (workers_.empty()) return false;
  const Sequence step = clock_min().Next();
  uint64_t samples = 0;
  for (const auto& [id, worker] : workers_) {
    if (worker.clock >= step) continue;
    auto held = worker.held.find(step);
    if (held == worker.held.end()) return false;
    samples += held->second.samples;
  }
  ApplyAction apply;
  apply.samples = samples;
  const uint64_t before = version_.number++;
  apply.version = version_;
  samples_applied_ += samples;
  std::vector<std::pair<Sender, Answer>> answers;
  for (auto& [id, worker] : workers_) {
    auto held = worker.held.find(step);
    if (held == worker.held.end()) continue;
    const Sender sender{id, worker.incarnation};
    const HeldPush push = held->second;
    worker.held.erase(held);
    const double weight = static_cast<double>(push.samples) / static_cast<double>(samples);
    apply.parts.push_back({{sender, step}, weight, push.samples});
    const uint64_t staleness = before >= push.base.number ? before - push.base.number : 0;
    answers.push_back({sender, {step, Outcome::kApplied, DiscardReason::kNone, version_, staleness}});
  }
  actions.push_back(std::move(apply));
  for (const auto& [sender, answer] : answers) Finish(sender, *Find(sender), answer, actions);
  return true;
}

// --- Pulls ------------------------------------------------------------------------------------------------------

void Engine::Pull(const PullEvent& pull, absl::Time now, Actions& actions) {
  Worker* worker = Find(pull.sender);
  if (worker == nullptr) {
    actions.push_back(RefuseAction{pull.sender, Sequence(), pull.id, Unknown(pull.sender), Sequence()});
    return;
  }
  if (worker->pulls.size() >= pull.waiting_max) worker->pulls.erase(worker->pulls.begin());
  worker->pulls.push_back({pull.id, pull.clock, now, now + config_.notice_every});
  Settle(actions);
}

bool Engine::MayGo(const Worker& worker, const WaitingPull& pull) const {
  return worker.clock >= pull.clock && WithinBound(clock_min(), pull.clock);
}

bool Engine::WithinBound(Clock64 min, Clock64 pull_clock) const {
  if (config_.mode == Mode::kAsync) return true;
  const uint64_t bound = config_.mode == Mode::kBsp ? 0 : config_.staleness_max;
  return min.value() + bound >= pull_clock.value();
}

bool Engine::MayServe(const PastState& past, const Sender& sender, Clock64 clock) const {
  const Worker* worker = Find(sender);
  if (worker == nullptr || past.version.lineage != version_.lineage) return false;
  const auto own = std::find_if(worker->answers.begin(), worker->answers.end(),
                                [&](const Answer& answer) { return answer.sequence == clock; });
  if (own == worker->answers.end() || own->version.lineage != past.version.lineage) return false;
  return own->version.number <= past.version.number && WithinBound(past.clock_min, clock);
}

void Engine::Settle(Actions& actions) {
  if (config_.mode == Mode::kBsp) {
    while (SettleBspStep(actions)) {
    }
  }
  for (auto& [id, live] : workers_) {
    const Worker& worker = live;
    const Sender sender{id, worker.incarnation};
    std::erase_if(live.pulls, [&](const WaitingPull& pull) {
      if (!MayGo(worker, pull)) return false;
      actions.push_back(ServeAction{sender, pull.id});
      return true;
    });
  }
}

void Engine::Tick(absl::Time now, Actions& actions) {
  if (workers_.empty()) return;
  const auto [culprit, slowest] = Slowest();
  for (auto& [id, worker] : workers_) {
    for (WaitingPull& pull : worker.pulls) {
      if (now < pull.notice_at) continue;
      pull.notice_at = now + config_.notice_every;
      actions.push_back(
          WaitingAction{{id, worker.incarnation}, pull.id, culprit, slowest->name, slowest->clock, now - pull.since});
    }
  }
}

// --- State ------------------------------------------------------------------------------------------------------

size_t Engine::waiting_pulls() const {
  size_t count = 0;
  for (const auto& [id, worker] : workers_) count += worker.pulls.size();
  return count;
}

size_t Engine::held_pushes() const {
  size_t count = 0;
  for (const auto& [id, worker] : workers_) count += worker.held.size();
  return count;
}

EngineState Engine::Snapshot() const {
  EngineState state{version_, samples_applied_, clock_min(), {}};
  for (const auto& [id, worker] : workers_) {
    state.workers.push_back({{id, worker.incarnation}, worker.clock, worker.answers});
  }
  for (const auto& [sender, worker] : restored_) state.workers.push_back(worker);
  return state;
}

}  // namespace slackline::ps
