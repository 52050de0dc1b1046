// What the steps in flight need a copy of each: what they push, in shared memory where the system has it, so that
// servers of this host read it in place; the weights that are written after them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/shm/segment.h"

namespace slackline::worker {

// Thread-safety: none.
class StepMemory {
 public:
  // `parts` pieces of `elements` floats, each on pages of its own, all 0. On the heap when `shared` is false, or when
  // there is no shared memory.
  StepMemory(size_t parts, uint64_t elements, bool shared);

  const std::vector<absl::Span<float>>& parts() const { return parts_; }
  // Null on the heap.
  const std::shared_ptr<shm::Segment>& segment() const { return segment_; }

 private:
  std::shared_ptr<shm::Segment> segment_;
  std::vector<std::unique_ptr<std::byte[]>> heap_;
  std::vector<absl::Span<float>> parts_;
};

}  // namespace slackline::worker
