// What the first GPU of a group makes of the sum where it is to go out encoded: its bytes, and the residuals, which
// stay on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/cuda/runtime.h"
#include "worker/group/chunk_plan.h"
#include "worker/group/chunk_store.h"

namespace slackline::worker::gpu {

// A stream of its own, so that buckets are encoded beside the sums and the copies of others.
//
// Copies: sum -> bytes: 1 (kernels); bytes, and what is not encoded -> host: 1.
// Thread-safety: one thread, whose current device is this one; norm() by any once all buckets are on the host.
class SumEncoder {
 public:
  // Borrows the plan. `trained`: so many elements from the first on count for norm(). Residuals are 0.
  static absl::StatusOr<std::unique_ptr<SumEncoder>> Create(const Device& device, const ChunkPlan& plan,
                                                            const Elements& trained, uint64_t elements, size_t buckets);
  ~SumEncoder();
  SumEncoder(const SumEncoder&) = delete;
  SumEncoder& operator=(const SumEncoder&) = delete;

  // Of a step.
  struct Memory {
    std::byte* block = nullptr;   // of the host: the bytes, as the plan has them
    float* host_push = nullptr;   // what is not encoded
    const float* push = nullptr;  // of the device: the sum
    cudaStream_t copies = nullptr;
  };
  // What comes back is added to the residuals before anything is encoded. The host's memory of both stays until all
  // buckets are there.
  absl::Status Begin(const Memory& memory, std::vector<ChunkStore::Returned> returned);
  struct Bucket {
    size_t number = 0;
    Elements elements;
    cudaStream_t sums = nullptr;  // makes it
  };
  // Puts kernels on its own stream and copies on that of copies: of all that this bucket completes.
  absl::Status Send(const Bucket& bucket);

  // The L2 norm of the trained elements of this step's sum.
  double norm() const;

 private:
  SumEncoder(const Device& device, const ChunkPlan& plan, const Elements& trained)
      : device_(device), plan_(plan), trained_(trained) {}

  absl::Status Allocate(uint64_t elements, size_t buckets);
  absl::Status Return(const ChunkStore::Returned& returned);
  absl::Status Encode(size_t index);
  absl::Status SumOfSquares(const Bucket& bucket);
  absl::Status CopyOut(const Bucket& bucket, const ChunkRange& chunks);
  absl::Status Copy(void* to, const void* from, size_t bytes, cudaStream_t stream) const;
  // What `before` has now comes before what `after` gets from now on.
  absl::Status Chain(cudaStream_t before, cudaStream_t after) const;
  absl::Status Check(cudaError_t said, const char* doing) const;
  // What the kernels' functions return.
  absl::Status CheckKernel(int said, const char* doing) const { return Check(static_cast<cudaError_t>(said), doing); }
  float* ResidualOf(const PlannedChunk& chunk) const {
    return chunk.error_feedback ? residual_ + chunk.begin : nullptr;
  }

  const Device device_;
  const ChunkPlan& plan_;
  const Elements trained_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  // The device's.
  float* residual_ = nullptr;  // null where no chunk has one
  std::byte* block_ = nullptr;
  void* scratch_ = nullptr;  // of top-k
  double* squares_ = nullptr;
  // The host's, pinned.
  ChunkStore::Block host_squares_;
  size_t squares_count_ = 0;

  // Of the step that is under way.
  Memory memory_;
  std::vector<ChunkStore::Returned> returned_;
};

}  // namespace slackline::worker::gpu
