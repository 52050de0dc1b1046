#include "ps/host/followed_workers.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace slackline::ps {

void FollowedWorkers::Adopt(EngineState snapshot) {
  state_ = std::move(snapshot);
  for (WorkerClock& worker : std::exchange(state_->workers, {})) {
    WorkerClock& known = members_[worker.sender.worker];
    if (known.sender.incarnation <= worker.sender.incarnation) known = std::move(worker);
  }
  for (const Sender& gone : std::exchange(state_->gone, {})) Left(gone);
}

void FollowedWorkers::Stepped(const Version& version, uint64_t samples) {
  SLACKLINE_CHECK(adopted());
  state_->version = version;
  state_->samples_applied += samples;
}

void FollowedWorkers::Joined(const Sender& sender, Clock64 clock) {
  if (gone_.Covers(sender)) return;
  WorkerClock& worker = members_[sender.worker];
  if (worker.sender.incarnation < sender.incarnation) worker = {sender, clock, {}};
  if (worker.sender == sender) worker.clock = std::max(worker.clock, clock);
}

void FollowedWorkers::Answered(const Sender& sender, const Answer& answer) {
  if (gone_.Covers(sender)) return;
  WorkerClock& worker = members_[sender.worker];
  if (worker.sender.incarnation < sender.incarnation) worker = {sender, Clock64(), {}};
  if (worker.sender != sender || answer.sequence <= worker.clock) return;  // of an earlier life, or said again
  worker.clock = answer.sequence;
  worker.answers.push_back(answer);
  if (worker.answers.size() > answers_max_) worker.answers.erase(worker.answers.begin());
}

void FollowedWorkers::Left(const Sender& sender) {
  gone_.Note(sender);
  const auto known = members_.find(sender.worker);
  if (known != members_.end() && gone_.Covers({sender.worker, known->second.sender.incarnation})) members_.erase(known);
}

EngineState FollowedWorkers::Finish() {
  SLACKLINE_CHECK(adopted());
  EngineState state = *std::exchange(state_, std::nullopt);
  Clock64 slowest(UINT64_MAX);
  for (auto& [id, worker] : std::exchange(members_, {})) {
    slowest = std::min(slowest, worker.clock);
    state.workers.push_back(std::move(worker));
  }
  const NewestIncarnations gone = std::exchange(gone_, {});
  for (const auto& [id, newest] : gone.all()) state.gone.push_back({id, newest});
  // A worker that was not heard of yet begins at the clock of the slowest one.
  if (!state.workers.empty()) state.clock_floor = std::max(state.clock_floor, slowest);
  return state;
}

}  // namespace slackline::ps
