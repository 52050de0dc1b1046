// What each mode promises of a step, said again from outside of the engine.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "ps/consistency/engine.h"

namespace slackline::sim {

struct StepPart {
  ps::PushRef push;
  Version base;
  // When it was complete.
  absl::Time staged_at;
};

// A step as the model of a shard sees it.
struct Step {
  ps::ApplyAction apply;
  std::vector<StepPart> parts;
  size_t live_workers = 0;
  // Every live worker that is not in it has had its last push discarded.
  bool others_discarded = false;
  absl::Time now;
  // softsync: answered and not applied, in the order of their answers; then the push that is about to be answered.
  std::deque<ps::PushRef> accepted;
  std::optional<ps::PushRef> arriving;
};

std::string Show(const ps::PushRef& push);

bool ReachesQuorum(const ps::EngineConfig& config, const Step& step);
// Whether the step may have fewer pushes than its quorum.
bool Overdue(const ps::EngineConfig& config, const Step& step);
// Empty, or how the step breaks the rules of the mode.
std::string BrokenRule(const ps::EngineConfig& config, const Step& step);

}  // namespace slackline::sim
