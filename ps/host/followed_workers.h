// FollowedWorkers: what a copy of a shard knows of the workers, from what the shard itself has told it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "common/base/ids.h"
#include "ps/consistency/engine.h"
#include "ps/consistency/newest_incarnations.h"

namespace slackline::ps {

// State for the engine of a copy, on its way to be the engine's. Of each worker the newest incarnation counts.
//
// Thread-safety: none.
class FollowedWorkers {
 public:
  // Keeps at most `answers_max` answers per worker.
  explicit FollowedWorkers(size_t answers_max) : answers_max_(answers_max) {}

  // Begins with a snapshot of the shard. Workers may have been heard of before it.
  void Adopt(EngineState snapshot);
  bool adopted() const { return state_.has_value(); }
  // Records a step of `samples` samples. Requires: adopted().
  void Stepped(const Version& version, uint64_t samples);
  void Joined(const Sender& sender, Clock64 clock);
  void Answered(const Sender& sender, const Answer& answer);
  void Left(const Sender& sender);

  // Returns the state from which the copy continues as the shard itself, and keeps nothing. Requires: adopted().
  EngineState Finish();

 private:
  const size_t answers_max_;
  std::optional<EngineState> state_;  // without the workers
  std::map<WorkerId, WorkerClock> members_;
  NewestIncarnations gone_;  // those that have left
};

}  // namespace slackline::ps
