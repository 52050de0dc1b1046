// SumEncoder: encodes the sum of gradients on the first GPU of a group. It produces the bytes to push, and the
// residuals, which stay on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/process/device.h"
#include "worker/cuda/runtime.h"
#include "worker/group/chunk_plan.h"
#include "worker/group/chunk_store.h"

namespace slackline::worker::gpu {

// SumEncoder has its own stream, so that buckets are encoded while other streams sum and copy.
//
// Copies:        sum -> bytes: 1 (kernels); bytes and unencoded elements -> host: 1.
// Thread-safety: one thread, whose current device is this one.
class SumEncoder {
 public:
  // Creates an encoder whose residuals are 0. Borrows the plan.
  static absl::StatusOr<std::unique_ptr<SumEncoder>> Create(const Device& device, const ChunkPlan& plan,
                                                            uint64_t elements);
  ~SumEncoder();
  SumEncoder(const SumEncoder&) = delete;
  SumEncoder& operator=(const SumEncoder&) = delete;

  // Memory of one step.
  struct Memory {
    std::byte* block = nullptr;   // host memory: the encoded bytes, laid out as in the plan
    float* host_push = nullptr;   // host memory: the elements that are not encoded
    const float* push = nullptr;  // device memory: the sum
    cudaStream_t copies = nullptr;
  };
  // Begins a step. Adds `returned` to the residuals before any chunk is encoded. The host memory of `memory` and
  // `returned` must stay valid until all buckets are on the host.
  absl::Status Begin(const Memory& memory, std::vector<ChunkStore::Returned> returned);
  struct Bucket {
    Elements elements;
    cudaStream_t sums = nullptr;  // computes the sum of the bucket
  };
  // Encodes and copies everything that this bucket completes: kernels run on this encoder's stream, copies on
  // Memory::copies.
  absl::Status Send(const Bucket& bucket);

 private:
  SumEncoder(const Device& device, const ChunkPlan& plan) : device_(device), plan_(plan) {}

  absl::Status Allocate(uint64_t elements);
  absl::Status Return(const ChunkStore::Returned& returned);
  absl::Status Encode(size_t index);
  absl::Status CopyOut(const Bucket& bucket, const ChunkRange& chunks);
  absl::Status Copy(void* to, const void* from, size_t bytes, cudaStream_t stream) const;
  // Makes later work on `after` wait for the work that `before` has now.
  absl::Status Chain(cudaStream_t before, cudaStream_t after) const;
  absl::Status Check(cudaError_t said, const char* doing) const;
  // Checks the result of a kernel's launch function.
  absl::Status CheckKernel(int said, const char* doing) const { return Check(static_cast<cudaError_t>(said), doing); }
  float* ResidualOf(const PlannedChunk& chunk) const {
    return chunk.error_feedback ? residual_ + chunk.begin : nullptr;
  }

  const Device device_;
  const ChunkPlan& plan_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  // Device memory.
  float* residual_ = nullptr;  // null if no chunk has error feedback
  std::byte* block_ = nullptr;
  void* scratch_ = nullptr;  // scratch memory for top-k

  // State of the step in progress.
  Memory memory_;
  std::vector<ChunkStore::Returned> returned_;
};

}  // namespace slackline::worker::gpu
