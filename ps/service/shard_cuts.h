// ShardCuts: the server's part of a checkpoint of the job. Its shards are cut where the scheduler wants them to be.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "parameter_server.pb.h"
#include "ps/base/service_metrics.h"
#include "ps/host/shard_host.h"
#include "ps/store/checkpoint_writer.h"

namespace slackline::ps {

// Thread-safety: none; the sequencer calls it.
// Ownership:     borrows the shards, the metrics and the time. A cut that waits is called by its shard, so this object
//                lives as long as shards run.
class ShardCuts {
 public:
  // `on_cut` is called when all shards have their cuts. The owner then calls Done() with the outcome. Null if this
  // server makes no checkpoints.
  ShardCuts(const std::map<uint32_t, std::unique_ptr<ShardHost>>& shards, ServiceMetrics& metrics,
            const TimeSource& time, std::function<void(CheckpointCut cut)> on_cut)
      : shards_(shards), metrics_(metrics), time_(time), on_cut_(std::move(on_cut)) {}

  // Cuts the shards, now or when they reach the wanted version. Replaces an earlier cut that is not complete.
  //   kFailedPrecondition  a shard without weights, or a later checkpoint was begun
  //   kInvalidArgument     a checkpoint without number or folder
  absl::StatusOr<wire::BeginCheckpointReply> Begin(const wire::BeginCheckpointRequest& request);
  // Records the outcome of a cut. The outcome of a cut that was replaced meanwhile is ignored.
  void Done(uint64_t checkpoint, uint32_t attempt, const CheckpointWriter::Written& written);
  // Records that the scheduler knows the outcome of the checkpoint.
  void Heard(uint64_t checkpoint);
  // Gives up the cut that waits, if one does: the shards are about to change.
  void GiveUp();
  // Returns the progress of the last checkpoint that was begun; empty once the scheduler has heard of its outcome.
  wire::CheckpointProgress progress() const;

 private:
  void Cut(const wire::BeginCheckpointRequest& request);

  const std::map<uint32_t, std::unique_ptr<ShardHost>>& shards_;
  ServiceMetrics& metrics_;
  const TimeSource& time_;
  const std::function<void(CheckpointCut cut)> on_cut_;
  wire::CheckpointProgress last_;  // last checkpoint; number 0 before the first
  uint64_t heard_ = 0;
  bool disk_full_said_ = false;  // the last checkpoint failed because of a full disk
  absl::Time begun_;             // when last_ began
  CheckpointCut cut_;            // cuts for last_, until all shards are in it
};

}  // namespace slackline::ps
