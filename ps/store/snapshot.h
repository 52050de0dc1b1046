// Snapshot of a shard, and what is known of a snapshot on disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "ps/consistency/engine.h"
#include "ps/shard/shard_state.h"

namespace slackline::ps {

// Identity of a shard in a job.
struct ShardIdentity {
  JobId job;
  ShardId shard;
  ShardExtent extent;
  // Names of the arrays: ShardState::arrays().
  std::vector<std::string> arrays;
};

// State of a shard; numbers and engine belong to the same version.
struct ShardSnapshot {
  ShardView numbers;
  EngineState engine;
  absl::Time taken;
};

struct KeptSnapshot {
  uint64_t id = 0;  // rises from one snapshot to the next
  Version version;
  uint64_t bytes = 0;  // size of all arrays
  absl::Time taken;
};

}  // namespace slackline::ps
