// Pinned host memory, with which the devices exchange data asynchronously.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/process/device.h"
#include "images/base/batch_memory.h"

namespace slackline::worker::gpu {

// Allocates pinned memory and does not clear it. The last holder frees it, in any thread.
//   kInternal  CUDA's message
absl::StatusOr<std::shared_ptr<std::byte[]>> MakePinnedBytes(size_t bytes);

// Creates memory for the batches of a group whose first device is `first`. `first` becomes the current device of all
// threads that create or free batches. Otherwise CUDA would create a context on the first GPU that the process sees,
// which may not belong to this group.
std::unique_ptr<images::BatchMemory> MakeBatchMemory(const Device& first);

// PinnedFloats owns an array of floats in pinned memory.
//
// Thread-safety: none.
class PinnedFloats {
 public:
  //   kInternal  CUDA's message
  static absl::StatusOr<std::unique_ptr<PinnedFloats>> Create(uint64_t elements);
  ~PinnedFloats();
  PinnedFloats(const PinnedFloats&) = delete;
  PinnedFloats& operator=(const PinnedFloats&) = delete;

  absl::Span<float> span() const { return span_; }

 private:
  explicit PinnedFloats(absl::Span<float> span) : span_(span) {}

  const absl::Span<float> span_;
};

// LentMemory pins memory that others own, if the system allows it. Otherwise copies are slower and block. The memory
// stays pinned; its owner frees it when the process ends.
class LentMemory {
 public:
  // Pins memory with `first` as the current device, so that no other GPU gets a context.
  explicit LentMemory(const Device& first) : first_(first) {}

  void Pin(absl::Span<float> memory);
  // Records that `memory` is already pinned.
  void Know(absl::Span<float> memory) { seen_.push_back(memory.data()); }

 private:
  const Device first_;
  std::vector<const float*> seen_;
};

}  // namespace slackline::worker::gpu
