// A shard at one marker, and what of it is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "ps/consistency/engine.h"
#include "ps/shard_state.h"

namespace slackline::ps {

// Which shard of which job.
struct ShardIdentity {
  JobId job;
  ShardId shard;
  ShardExtent extent;
  // ShardState::arrays().
  std::vector<std::string> arrays;
};

// The numbers and the engine belong to one version.
struct ShardSnapshot {
  ShardView numbers;
  EngineState engine;
  absl::Time taken;
};

struct KeptSnapshot {
  uint64_t id = 0;  // rises from one to the next
  Version version;
  uint64_t bytes = 0;  // of all arrays
  absl::Time taken;
};

}  // namespace slackline::ps
