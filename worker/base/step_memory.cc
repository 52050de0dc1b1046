#include "worker/base/step_memory.h"

#include <string>
#include <utility>

#include "common/log/logging.h"

namespace slackline::worker {

StepMemory::StepMemory(size_t parts, uint64_t elements, bool shared) {
  const uint64_t stride = shm::RoundUpToPages(elements * sizeof(float));
  if (shared) {
    auto segment = shm::Segment::Create({.name = "slackline-push", .bytes = parts * stride});
    if (segment.ok()) {
      segment_ = *std::move(segment);
    } else {
      log::Warning("no shared memory: ", std::string(segment.status().message()));
    }
  }
  for (size_t i = 0; i < parts; ++i) {
    float* begin = nullptr;
    if (segment_ != nullptr) {
      begin = reinterpret_cast<float*>(segment_->data() + i * stride);
    } else {
      // Room to begin on a page, and to end on one.
      const uint64_t page = shm::RoundUpToPages(1), room = stride + page;
      heap_.push_back(std::make_unique<std::byte[]>(room));
      void* memory = heap_.back().get();
      size_t left = room;
      begin = static_cast<float*>(std::align(page, stride, memory, left));
    }
    parts_.emplace_back(begin, elements);
  }
}

}  // namespace slackline::worker
