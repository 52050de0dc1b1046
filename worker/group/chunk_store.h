// What a group that encodes keeps on the host: the bytes of its steps, and what has come back of them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/chunk_encoder.h"
#include "worker/group/chunk_plan.h"

namespace slackline::worker {

// Steps that write to different push() memories have different blocks; a block is written again when nobody holds bytes
// of it any more. So there are as many as steps in flight, and one for each that gRPC still reads of.
//
// Thread-safety: Take() and Return() from any thread; the others by the thread that steps.
class ChunkStore final : public ChunkEncoder {
 public:
  using Block = std::shared_ptr<std::byte[]>;
  struct Device {
    // Memory of the host that the device copies to.
    std::function<absl::StatusOr<Block>(size_t bytes)> allocate;
    // Residuals of this plan, all 0, and what else it takes to encode; of an empty one nothing.
    std::function<absl::Status(const ChunkPlan&)> prepare;
  };
  explicit ChunkStore(Device device) : device_(std::move(device)) {}

  absl::Status Plan(std::vector<PlannedChunk> chunks) override;
  EncodedBytes Take(const float* push, size_t chunk) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Return(size_t chunk, EncodedBytes bytes) override ABSL_LOCKS_EXCLUDED(mutex_);

  const ChunkPlan& plan() const { return plan_; }
  // A step begins that writes to this push(): the block that its chunks go to.
  // Requires: the plan is not empty.
  absl::StatusOr<std::byte*> Begin(const float* push) ABSL_LOCKS_EXCLUDED(mutex_);
  struct Returned {
    size_t chunk = 0;
    EncodedBytes bytes;
  };
  // What has come back since the last call; to be added to residuals before anything is encoded.
  std::vector<Returned> TakeReturned() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Blocks of a plan that nobody uses. Shared with the bytes that are out.
  struct Pool {
    absl::Mutex mutex;
    std::vector<Block> free ABSL_GUARDED_BY(mutex);
  };
  static Block Lend(const std::shared_ptr<Pool>& pool, Block block);

  const Device device_;
  ChunkPlan plan_;
  std::shared_ptr<Pool> pool_ = std::make_shared<Pool>();

  absl::Mutex mutex_;
  std::vector<std::pair<const float*, Block>> steps_ ABSL_GUARDED_BY(mutex_);
  std::vector<Returned> returned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::worker
