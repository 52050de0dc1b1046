#include "common/job/consistency_modes.h"

#include "common/base/check.h"

namespace slackline {
namespace {

constexpr ModeFacts kModes[] = {
    {.mode = ConsistencyMode::kAsync, .name = "async"},
    {.mode = ConsistencyMode::kSsp, .name = "ssp", .has_bound = true, .waits_for_slowest = true},
    {.mode = ConsistencyMode::kBsp, .name = "bsp", .synchronous = true, .waits_for_slowest = true},
    {.mode = ConsistencyMode::kSoftsync, .name = "softsync", .has_groups = true, .answers_first = true},
    {.mode = ConsistencyMode::kQuorum, .name = "quorum", .has_quorum = true, .synchronous = true},
};

constexpr ModeFacts kQuorumThatCountsLate = {.mode = ConsistencyMode::kQuorum,
                                             .name = "quorum",
                                             .with = " with consistency.late: count",
                                             .has_quorum = true,
                                             .synchronous = true,
                                             .answers_first = true};

}  // namespace

absl::Span<const ModeFacts> AllModes() { return kModes; }

const ModeFacts& FactsOf(ConsistencyMode mode, bool counts_late) {
  if (counts_late && mode == ConsistencyMode::kQuorum) return kQuorumThatCountsLate;
  const ModeFacts* found = nullptr;
  for (const ModeFacts& facts : kModes) {
    if (facts.mode == mode) found = &facts;
  }
  SLACKLINE_CHECK(found != nullptr);
  return *found;
}

}  // namespace slackline
