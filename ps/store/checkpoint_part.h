// A shard's part of a checkpoint of the job. It is written at the shard's cut, and read by any shard that has its
// elements later.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "checkpoint.pb.h"
#include "common/base/ids.h"
#include "common/checkpoint/model_reader.h"
#include "ps/consistency/engine.h"
#include "ps/shard/shard_state.h"

namespace slackline::ps {

// State of a shard at its cut: references, which cost no copy.
struct ShardCut {
  ShardId shard;
  ShardExtent extent;
  // Names of the arrays: ShardState::arrays().
  std::vector<std::string> arrays;
  ShardView numbers;
  Version version;
  uint64_t engine_samples = 0;
  Clock64 clock_min;
};

// Writes the cut's file into the folder; the file is on disk when this returns.
//   kCancelled                        `stopped` returned true
//   kFailedPrecondition               a weight is not finite
//   kResourceExhausted, kUnavailable  as in DurableFile
absl::StatusOr<wire::CheckpointFile> WriteCut(const std::string& folder, JobId job, const ShardCut& cut,
                                              absl::FunctionRef<bool()> stopped);

// Fills a shard that has no weights yet with the checkpoint's values for its elements, and returns the state that its
// engine continues from. Elements may come from several shards of the checkpoint; version, samples and the optimizer's
// steps are then those of the shard that gives most of them.
//   kFailedPrecondition  the checkpoint is of another model, or of another optimizer
//   kDataLoss            the checkpoint is broken; the shard must then not be used
absl::StatusOr<EngineState> ReadPart(checkpoint::ModelReader& reader, const ShardExtent& extent,
                                     const std::vector<std::string>& arrays, ShardState& shard);

}  // namespace slackline::ps
