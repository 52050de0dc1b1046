// Rules that each mode promises for a step, written a second time, independently of the engine.
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
  // Time at which the push was complete.
  absl::Time staged_at;
};

// A step as the model of a shard sees it.
struct Step {
  ps::ApplyAction apply;
  std::vector<StepPart> parts;
  size_t live_workers = 0;
  // True if the last push of every live worker outside of the step was discarded.
  bool others_discarded = false;
  absl::Time now;
  // Time of the step before, and whether the members are still those of that time. Infinite past: there was none since
  // the start or a restore.
  absl::Time before = absl::InfinitePast();
  bool same_members = false;
  // softsync: pushes that are answered and not applied, in the order of their answers; then the push that is about to
  // be answered.
  std::deque<ps::PushRef> accepted;
  std::optional<ps::PushRef> arriving;
};

std::string Show(const ps::PushRef& push);

// Largest time between two ticks of a shard in quorum. A shard whose machine stands still has none.
inline constexpr absl::Duration kTick = absl::Milliseconds(100);

bool ReachesQuorum(const ps::EngineConfig& config, const Step& step);
bool HasMoreThanItsQuorum(const ps::EngineConfig& config, const Step& step);
// Returns whether the step may have fewer pushes than its quorum.
bool Overdue(const ps::EngineConfig& config, const Step& step);
// Returns how the step breaks the rules of the mode; empty if it breaks none.
std::string BrokenRule(const ps::EngineConfig& config, const Step& step);

}  // namespace slackline::sim
