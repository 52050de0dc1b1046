// SquareSums: the norm of a gradient, measured on the GPU while it is copied to the host.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/process/device.h"
#include "worker/cuda/runtime.h"
#include "worker/group/chunk_store.h"

namespace slackline::worker::gpu {

// Thread-safety: one thread, whose current device is this one; norm() from any thread once all parts are on the host.
class SquareSums {
 public:
  // Creates sums for a gradient of `parts` parts.
  static absl::StatusOr<std::unique_ptr<SquareSums>> Create(const Device& device, size_t parts);
  ~SquareSums();
  SquareSums(const SquareSums&) = delete;
  SquareSums& operator=(const SquareSums&) = delete;

  // Enqueues the measurement of part `part`, device memory, on `stream`.
  absl::Status Measure(size_t part, const float* values, size_t elements, cudaStream_t stream);
  // Enqueues the copy of its result to the host on `copies`. Requires: `copies` waits for the measurement.
  absl::Status CopyOut(size_t part, cudaStream_t copies);
  // Returns the L2 norm over all parts.
  double norm() const;

 private:
  SquareSums(const Device& device, size_t parts) : device_(device), parts_(parts) {}

  const Device device_;
  const size_t parts_;
  double* sums_ = nullptr;       // device memory
  ChunkStore::Block host_sums_;  // pinned
};

}  // namespace slackline::worker::gpu
