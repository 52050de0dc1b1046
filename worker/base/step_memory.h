// Memory of which each step in flight needs its own part: for pushes, in shared memory if the system has it, so that
// servers of this host read them in place; and for the weights that are written after the steps.
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
  // Makes `parts` pieces of `elements` floats, each on pages of its own, all 0. They are on the heap if `shared` is
  // false, or if there is no shared memory.
  StepMemory(size_t parts, uint64_t elements, bool shared);

  const std::vector<absl::Span<float>>& parts() const { return parts_; }
  // Null if the memory is on the heap.
  const std::shared_ptr<shm::Segment>& segment() const { return segment_; }

 private:
  std::shared_ptr<shm::Segment> segment_;
  std::vector<std::unique_ptr<std::byte[]>> heap_;
  std::vector<absl::Span<float>> parts_;
};

}  // namespace slackline::worker
