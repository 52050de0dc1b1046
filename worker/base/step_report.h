// The report of servers on one step.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/staleness_counts.h"

namespace slackline::worker {

struct StepReport {
  Clock64 clock;
  uint64_t shards_applied = 0;
  uint64_t shards_discarded = 0;
  uint64_t shards_quarantined = 0;  // shards that discarded the push as an outlier; included in shards_discarded
  uint64_t lost = 0;                // sub-pushes lost in restores of servers, reported since the last step
  uint64_t staleness_sum = 0;       // sum over the shards that applied the push
  uint64_t staleness_max = 0;
  StalenessCounts staleness;
  uint64_t slack = 0;  // this worker's clock minus the slowest worker's clock; largest over all shards
  // Bytes of values only, sent or received in any way. `pushed_bytes` counts this step's push as encoded;
  // `pulled_bytes` counts all weights that arrived since the last step.
  uint64_t pushed_bytes = 0;
  uint64_t pulled_bytes = 0;
  absl::Duration waited;
  // Time from the step's commit until the last shard had answered, and until the resulting weights had arrived.
  absl::Duration pushed;
  absl::Duration pulled;
};

}  // namespace slackline::worker
