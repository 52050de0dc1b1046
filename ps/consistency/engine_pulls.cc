// Pulls: when they go, and whom they wait for.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "ps/consistency/engine.h"

namespace slackline::ps {

void Engine::Pull(const PullEvent& pull, absl::Time now, Actions& actions) {
  now_ = std::max(now_, now);
  Worker* worker = Find(pull.sender);
  if (worker == nullptr) {
    actions.push_back(RefuseAction{pull.sender, Sequence(), pull.id, Unknown(pull.sender), Sequence()});
    return;
  }
  {
    Change change(*this, pull.sender.worker, *worker);
    if (worker->pulls.size() >= pull.waiting_max) worker->pulls.erase(worker->pulls.begin());
    worker->pulls.push_back({pull.id, pull.clock, now, now + config_.notice_every});
  }
  Settle(actions);
}

// In the order of the workers' numbers, whatever has set them free.
void Engine::ServePulls(Actions& actions) {
  for (auto gate = gate_.begin(); gate != gate_.end() && WithinBound(clock_min(), gate->first);
       gate = gate_.erase(gate)) {
    for (const WorkerId id : gate->second) {
      const auto found = by_id_.find(id);
      if (found == by_id_.end() || found->second->gate != gate->first) continue;
      found->second->gate.reset();
      stirred_.push_back(id);
    }
  }
  absl::c_sort(stirred_);
  stirred_.erase(std::unique(stirred_.begin(), stirred_.end()), stirred_.end());
  for (const WorkerId id : stirred_) {
    if (const auto found = by_id_.find(id); found != by_id_.end()) ServePulls(id, *found->second, actions);
  }
  stirred_.clear();
}

void Engine::ServePulls(WorkerId id, Worker& worker, Actions& actions) {
  std::erase_if(worker.pulls, [&](const WaitingPull& pull) {
    if (!MayGo(worker, pull)) return false;
    actions.push_back(ServeAction{{id, worker.incarnation}, pull.id});
    worker.pulled = version_;
    worker.pulled_at = now_;
    return true;
  });
  std::optional<Clock64> gate = worker.gate;
  for (const WaitingPull& pull : worker.pulls) {
    if (pull.clock <= worker.clock) gate = std::min(gate.value_or(pull.clock), pull.clock);
  }
  if (gate == worker.gate) return;
  worker.gate = gate;
  gate_[*gate].push_back(id);
}

bool Engine::MayGo(const Worker& worker, const WaitingPull& pull) const {
  return worker.clock >= pull.clock && WithinBound(clock_min(), pull.clock);
}

bool Engine::WithinBound(Clock64 min, Clock64 pull_clock) const {
  if (config_.mode != Mode::kBsp && config_.mode != Mode::kSsp) return true;
  const uint64_t bound = config_.mode == Mode::kBsp ? 0 : staleness_bound_;
  return min.value() + bound >= pull_clock.value();
}

bool Engine::MayServe(const PastState& past, const Sender& sender, Clock64 clock) const {
  const Worker* worker = Find(sender);
  if (worker == nullptr || past.version.lineage != version_.lineage) return false;
  // A push from there would be late.
  if (config_.mode == Mode::kQuorum && past.version != version_) return false;
  const auto own = std::find_if(worker->answers.begin(), worker->answers.end(),
                                [&](const Answer& answer) { return answer.sequence == clock; });
  if (own == worker->answers.end() || own->version.lineage != past.version.lineage) return false;
  return own->version.number <= past.version.number && WithinBound(past.clock_min, clock);
}

// --- Waiting ----------------------------------------------------------------------------------------------------

void Engine::Tick(absl::Time now, Actions& actions) {
  now_ = std::max(now_, now);
  if (workers_.empty()) return;
  if (const bool overdue = Overdue(now); overdue || config_.grace) {
    if (overdue) ApplyOpenStep(actions);
    Settle(actions);
  }
  std::optional<WorkerId> awaited;
  for (auto& [id, worker] : workers_) {
    for (WaitingPull& pull : worker.pulls) {
      if (now < pull.notice_at) continue;
      pull.notice_at = now + config_.notice_every;
      if (!awaited) awaited = Culprit();
      actions.push_back(Notice(id, pull, *awaited, now));
    }
  }
}

WaitingAction Engine::Notice(WorkerId id, const WaitingPull& pull, WorkerId awaited, absl::Time now) const {
  const Worker& worker = workers_.at(id);
  const bool own = worker.clock < pull.clock && worker.held.empty();
  const Worker& culprit = own ? worker : workers_.at(awaited);
  WaitingAction notice{{id, worker.incarnation}, pull.id, own ? id : awaited, culprit.name, culprit.clock,
                       now - pull.since};
  if (own) {
    notice.own_push = worker.clock.Next();
  } else if (config_.mode == Mode::kQuorum) {
    notice.step = {OpenStepSize(), QuorumSize(), missing_.size()};
  }
  return notice;
}

// The slowest; of equals, and in quorum of all, one whose next push has not come.
WorkerId Engine::Culprit() const {
  auto rank = [this](const Worker& worker) {
    const bool there = !worker.held.empty();
    return std::tuple(config_.mode == Mode::kQuorum && there, worker.clock, there);
  };
  return absl::c_min_element(workers_, [&](const auto& a, const auto& b) { return rank(a.second) < rank(b.second); })
      ->first;
}

size_t Engine::waiting_pulls() const {
  size_t count = 0;
  for (const auto& [id, worker] : workers_) count += worker.pulls.size();
  return count;
}

}  // namespace slackline::ps
