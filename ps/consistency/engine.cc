// Members, streams and callers; what the modes make of pushes is in steps.cc, whom pulls wait for in pulls.cc.
#include "ps/consistency/engine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace slackline::ps {

Engine::Engine(const EngineConfig& config)
    : config_(config), staleness_bound_(config.staleness_max), version_{Lineage(1), 0} {
  SLACKLINE_CHECK(config_.samples_nominal > 0);
  SLACKLINE_CHECK(config_.window_max > 0);
  SLACKLINE_CHECK(config_.softsync_n > 0);
  SLACKLINE_CHECK(config_.quorum > 0 && config_.quorum <= 1);
}

Engine::Engine(const EngineConfig& config, const EngineState& restored) : Engine(config) {
  Restore(restored, restored.version.lineage.Next());
}

void Engine::Restore(const EngineState& restored, Lineage lineage) {
  SLACKLINE_CHECK(workers_.empty() && version_.number == 0);
  version_ = {std::max(lineage, restored.version.lineage.Next()), restored.version.number};
  samples_applied_ = restored.samples_applied;
  clock_floor_ = restored.clock_floor;
  for (const WorkerClock& worker : restored.workers) {
    restored_[worker.sender] = worker;
    newest_.Note(worker.sender);
  }
  for (const Sender& gone : restored.gone) newest_.Note(gone);
}

// --- Membership -------------------------------------------------------------------------------------------------

absl::Status Engine::SetMembers(const MemberSet& set, Actions& actions) {
  if (set.since && set.epoch == epoch_) return absl::OkStatus();
  if (set.since.value_or(epoch_) != epoch_ || set.epoch < epoch_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "members epoch is ", set.epoch.value(), set.since ? absl::StrCat(", a change of ", set.since->value()) : "",
        ", installed is ", epoch_.value()));
  }
  const std::vector<Sender> out = PutOutBy(set);
  epoch_ = set.epoch;
  planned_until_ = absl::InfinitePast();
  const Clock64 first = clock_min();
  const auto live_before = static_cast<double>(workers_.size());
  for (const Sender& sender : out) PutOut(sender.worker, actions);
  for (const MemberEntry& member : set.members) {
    if (IsMember(member.sender)) continue;
    Worker worker;
    worker.incarnation = member.sender.incarnation;
    worker.clock = first;
    if (const auto old = restored_.find(member.sender); old != restored_.end()) {
      worker.clock = old->second.clock;
      worker.heard = true;
      worker.answers = old->second.answers;
    } else if (newest_.Covers(member.sender)) {
      // A scheduler that went on from an old state has put it in again. What it has pushed is not known any more.
      continue;
    }
    worker.name = member.name;
    newest_.Note(member.sender);
    Worker& live = workers_[member.sender.worker] = std::move(worker);
    by_id_[member.sender.worker] = &live;
    List(member.sender.worker, live);
  }
  restored_.clear();
  if (workers_.empty() && !accepted_.empty()) {
    // Late pushes of a quorum may be of more workers than were left.
    const double share = static_cast<double>(accepted_.size()) / live_before;
    ApplyAccepted(accepted_.size(), std::min(1.0, share), actions);
  }
  // The floor stays where the members were, so that whoever comes into an empty set goes on from there.
  clock_floor_ = std::max(clock_floor_, workers_.empty() ? first : clock_min());
  Settle(actions);
  return absl::OkStatus();
}

std::vector<Sender> Engine::PutOutBy(const MemberSet& set) const {
  std::set<Sender> out;
  if (set.since) {
    for (const WorkerId id : set.gone) {
      if (const auto live = workers_.find(id); live != workers_.end()) out.insert({id, live->second.incarnation});
    }
    for (const MemberEntry& member : set.members) {
      const auto live = workers_.find(member.sender.worker);
      if (live != workers_.end()) out.insert({live->first, live->second.incarnation});
    }
  } else {
    for (const auto& [id, worker] : workers_) out.insert(out.end(), {id, worker.incarnation});
  }
  for (const MemberEntry& member : set.members) out.erase(member.sender);
  return {out.begin(), out.end()};
}

void Engine::PutOut(WorkerId id, Actions& actions) {
  Worker& worker = workers_.at(id);
  for (const auto& [sequence, held] : worker.held) actions.push_back(DropAction{{{id, worker.incarnation}, sequence}});
  Unlist(worker);
  by_id_.erase(id);
  workers_.erase(id);
}

void Engine::SetStalenessBound(uint64_t bound, Actions& actions) {
  if (bound == staleness_bound_) return;
  staleness_bound_ = bound;
  Settle(actions);
}

void Engine::List(WorkerId id, const Worker& worker) {
  clocks_.Add(worker.clock);
  if (worker.held.empty()) missing_.Add(worker.clock);
  if (!worker.pulls.empty()) stirred_.push_back(id);
}

void Engine::Unlist(const Worker& worker) {
  clocks_.Remove(worker.clock);
  if (worker.held.empty()) missing_.Remove(worker.clock);
}

Clock64 Engine::clock_min() const { return clocks_.empty() ? clock_floor_ : clocks_.min(); }

std::optional<Clock64> Engine::clock(WorkerId worker) const {
  auto found = workers_.find(worker);
  if (found == workers_.end()) return std::nullopt;
  return found->second.clock;
}

absl::string_view Engine::name(WorkerId worker) const {
  auto found = workers_.find(worker);
  return found == workers_.end() ? absl::string_view() : found->second.name;
}

const Engine::Worker* Engine::Find(const Sender& sender) const {
  const auto found = by_id_.find(sender.worker);
  if (found == by_id_.end() || found->second->incarnation != sender.incarnation) return nullptr;
  return found->second;
}

Engine::Worker* Engine::Find(const Sender& sender) {
  return const_cast<Worker*>(static_cast<const Engine*>(this)->Find(sender));
}

absl::Status Engine::Unknown(const Sender& sender) const {
  auto found = workers_.find(sender.worker);
  if (found == workers_.end() && newest_.Covers(sender)) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", sender.worker.value(), " incarnation ", sender.incarnation.value(),
                     " was out of the set of members, and is none again under this incarnation: register anew"));
  }
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

absl::Status Engine::CheckHello(const HelloEvent& hello) const {
  const Worker* worker = Find(hello.sender);
  if (worker == nullptr) return Unknown(hello.sender);
  const Sequence said = std::max(hello.first_clock, hello.last_answered);
  if (said.value() + worker->answers.size() >= worker->clock.value()) return absl::OkStatus();
  // A scheduler that went on from an old state has put it in again.
  return absl::FailedPreconditionError(absl::StrCat("worker ", hello.sender.worker.value(), " goes on from clock ",
                                                    said.value(), ", here it is at ", worker->clock.value(),
                                                    ": it was out of the set of members meanwhile"));
}

absl::Status Engine::Hello(const HelloEvent& hello, Actions& actions) {
  if (absl::Status status = CheckHello(hello); !status.ok()) return status;
  Worker* worker = Find(hello.sender);
  Disconnected(hello.sender);
  worker->heard = true;
  const Sequence known = worker->clock;
  const Sequence claimed = std::max(hello.first_clock, hello.last_answered);
  if (claimed <= known) return absl::OkStatus();
  {
    // The clock never waits for the past. Up to first_clock there were no pushes of this incarnation.
    Change change(*this, hello.sender.worker, *worker);
    worker->clock = claimed;
    while (!worker->held.empty() && worker->held.begin()->first <= claimed) {
      actions.push_back(DropAction{{hello.sender, worker->held.begin()->first}});
      worker->held.erase(worker->held.begin());
    }
  }
  const Sequence lost_from = std::max(known, hello.first_clock);
  if (claimed > lost_from) {
    worker->answers.clear();
    actions.push_back(LostAction{hello.sender, lost_from, claimed});
  }
  AnswerLate(hello.sender.worker, *worker, actions);
  Settle(actions);
  return absl::OkStatus();
}

void Engine::Disconnected(const Sender& sender) {
  Worker* worker = Find(sender);
  if (worker == nullptr || worker->pulls.empty()) return;
  Change change(*this, sender.worker, *worker);
  worker->pulls.clear();
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
  worker->heard = true;
  now_ = std::max(now_, push.at);
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
  if (absl::Status status = CheckPush(push, *worker); !status.ok()) {
    // It was admitted, so that the caller has its bytes.
    actions.push_back(DropAction{{push.sender, push.sequence}});
    return refuse(std::move(status));
  }
  if (push.base.lineage != version_.lineage) {
    actions.push_back(DropAction{{push.sender, push.sequence}});
    Finish(push.sender, *worker, {push.sequence, Outcome::kDiscarded, DiscardReason::kLineage, version_, 0}, actions);
  } else if (Quarantines(push, *worker)) {
    actions.push_back(DropAction{{push.sender, push.sequence}});
    Finish(push.sender, *worker, {push.sequence, Outcome::kDiscarded, DiscardReason::kOutlier, version_, 0}, actions);
  } else {
    Take(push, *worker, actions);
  }
  Settle(actions);
}

bool Engine::Quarantines(const PushEvent& push, const Worker& worker) {
  if (config_.outlier_factor <= 0) return false;
  const bool far_above = part_norms_.FarAbove(push.part_norm, config_.outlier_factor) ||
                         norms_.FarAbove(push.gradient_norm, config_.outlier_factor);
  // Outliers, too: where most pushes are far above what was, that is how they are now.
  part_norms_.Add(push.part_norm);
  norms_.Add(push.gradient_norm);
  return far_above && worker.held.empty();
}

absl::Status Engine::CheckPush(const PushEvent& push, const Worker& worker) const {
  if (push.samples == 0) return absl::InvalidArgumentError("push has 0 samples, at least 1 is allowed");
  const bool future = push.base.lineage == version_.lineage && push.base.number > version_.number;
  if (push.base.lineage > version_.lineage || future) {
    return absl::InvalidArgumentError(
        absl::StrCat("push was computed from version ", ToString(push.base), ", the shard is at ", ToString(version_)));
  }
  if (push.base.lineage != version_.lineage && !worker.held.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("push ", push.sequence.value(), " was computed from version ", ToString(push.base),
                     ", an earlier push of this worker from the shard's lineage ", version_.lineage.value()));
  }
  return absl::OkStatus();
}

// --- State ------------------------------------------------------------------------------------------------------

size_t Engine::held_pushes() const {
  size_t count = accepted_.size();
  for (const auto& [id, worker] : workers_) count += worker.held.size();
  return count;
}

EngineState Engine::Snapshot() const {
  std::map<Sender, Sequence> accepted;  // the first of each, which is not in the weights yet
  for (const Taken& push : accepted_) accepted.emplace(push.push.sender, push.push.sequence);
  EngineState state{version_, samples_applied_, clock_min(), {}, {}};
  for (const auto& [id, worker] : workers_) {
    if (!worker.heard) continue;
    WorkerClock known{{id, worker.incarnation}, worker.clock, worker.answers};
    if (auto first = accepted.find(known.sender); first != accepted.end()) {
      known.clock = Clock64(first->second.value() - 1);
      std::erase_if(known.answers, [&](const Answer& answer) { return answer.sequence > known.clock; });
    }
    state.clock_floor = std::min(state.clock_floor, known.clock);
    state.workers.push_back(std::move(known));
  }
  for (const auto& [sender, worker] : restored_) state.workers.push_back(worker);
  for (const auto& [id, newest] : newest_.all()) {
    const auto live = workers_.find(id);
    const bool here = live != workers_.end() && live->second.incarnation == newest;
    if (!here && !restored_.contains({id, newest})) state.gone.push_back({id, newest});
  }
  return state;
}

}  // namespace slackline::ps
