// A shard's part of a checkpoint of the job: written at its cut, and read by whichever shard has its elements later.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "checkpoint.pb.h"
#include "common/checkpoint/model_reader.h"
#include "common/ids.h"
#include "ps/consistency/engine.h"
#include "ps/shard_state.h"

namespace slackline::ps {

// A shard at its cut: references, which cost no copy.
struct ShardCut {
  ShardId shard;
  ShardExtent extent;
  // ShardState::arrays().
  std::vector<std::string> arrays;
  ShardView numbers;
  Version version;
  uint64_t engine_samples = 0;
  Clock64 clock_min;
};

// Writes the cut's file into the folder; it is on disk when this returns.
//   kCancelled                        `stopped` said so
//   kFailedPrecondition               a weight is not finite
//   kResourceExhausted, kUnavailable  as DurableFile has them
absl::StatusOr<wire::CheckpointFile> WriteCut(const std::string& folder, JobId job, const ShardCut& cut,
                                              absl::FunctionRef<bool()> stopped);

// Fills a shard that has no weights yet with what the checkpoint has for its elements, and returns the state that its
// engine goes on from. Elements may come from several shards; version, samples and the optimizer's steps are then those
// of the one that gives most of them.
//   kFailedPrecondition  the checkpoint is of another model, or of another optimizer
//   kDataLoss            it is broken; the shard is then not to be used
absl::StatusOr<EngineState> ReadPart(checkpoint::ModelReader& reader, const ShardExtent& extent,
                                     const std::vector<std::string>& arrays, ShardState& shard);

}  // namespace slackline::ps
