// ChunkStore: the host memory of a group that encodes. It holds the encoded bytes of steps, and the chunks that were
// returned.
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
#include "worker/base/chunk_encoder.h"
#include "worker/group/chunk_plan.h"

namespace slackline::worker {

// ChunkStore gives steps that write to different push() memories different blocks. A block is reused when nobody holds
// its bytes any more, so there is one block per step in flight, and one for each block that gRPC still reads.
//
// Thread-safety: Take() and Return() from any thread; the others from the stepping thread.
class ChunkStore final : public ChunkEncoder {
 public:
  using Block = std::shared_ptr<std::byte[]>;
  struct Device {
    // Allocates host memory to which the device copies.
    std::function<absl::StatusOr<Block>(size_t bytes)> allocate;
    // Prepares the device for a plan: residuals, all 0, and everything else that encoding needs. An empty plan needs
    // nothing.
    std::function<absl::Status(const ChunkPlan&)> prepare;
  };
  explicit ChunkStore(Device device) : device_(std::move(device)) {}

  absl::Status Plan(std::vector<PlannedChunk> chunks) override;
  EncodedBytes Take(const float* push, size_t chunk) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Return(size_t chunk, EncodedBytes bytes) override ABSL_LOCKS_EXCLUDED(mutex_);

  const ChunkPlan& plan() const { return plan_; }
  // Begins a step that writes to this push(). Returns the block for its chunks.
  // Requires: the plan is not empty.
  absl::StatusOr<std::byte*> Begin(const float* push) ABSL_LOCKS_EXCLUDED(mutex_);
  struct Returned {
    size_t chunk = 0;
    EncodedBytes bytes;
  };
  // Returns the chunks that were returned since the last call. The caller adds them to the residuals before it encodes
  // anything.
  std::vector<Returned> TakeReturned() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Unused blocks of a plan. Shared with the bytes that are lent.
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
