// Memory of the host that the devices copy from and to beside everything else: it is pinned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/model/batch_memory.h"

namespace slackline::worker::gpu {

// Not cleared. Given back by whoever holds it last, in whatever thread.
//   kInternal  CUDA's message
absl::StatusOr<std::shared_ptr<std::byte[]>> MakePinnedBytes(size_t bytes);

// For batches of a group whose first device this is. It is from then on the device of threads that make them or throw
// them away: CUDA would else begin to use the first that the process sees, which this group may not compute on.
std::unique_ptr<BatchMemory> MakeBatchMemory(const Device& first);

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

// Pins memory of others, where the system lets it; where not, copies are slower and wait. It stays pinned: whoever
// lends it frees it when the process ends.
class LentMemory {
 public:
  // Beside `first`, so that no other GPU has a context for it.
  explicit LentMemory(const Device& first) : first_(first) {}

  void Pin(absl::Span<float> memory);
  // This is pinned.
  void Know(absl::Span<float> memory) { seen_.push_back(memory.data()); }

 private:
  const Device first_;
  std::vector<const float*> seen_;
};

}  // namespace slackline::worker::gpu
