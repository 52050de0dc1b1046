#include "common/shm/loan_flag.h"

#include <cstdint>

namespace slackline::shm {
namespace {

constexpr uint32_t kLent = 1;
constexpr uint32_t kTakenBack = 0;

// Orders what lies before it and what lies behind, also between processes. Not std::atomic_thread_fence(), which the
// thread sanitizer does not know.
void Fence() { __sync_synchronize(); }

}  // namespace

absl::StatusOr<std::unique_ptr<LoanFlag>> LoanFlag::Create() {
  auto segment = Segment::Create({.name = "slackline-loan", .bytes = sizeof(uint32_t)});
  if (!segment.ok()) return segment.status();
  __atomic_store_n(reinterpret_cast<uint32_t*>((*segment)->data()), kLent, __ATOMIC_RELEASE);
  return std::unique_ptr<LoanFlag>(new LoanFlag(*std::move(segment)));
}

void LoanFlag::TakeBack() {
  __atomic_store_n(reinterpret_cast<uint32_t*>(segment_->data()), kTakenBack, __ATOMIC_RELAXED);
  Fence();
}

absl::StatusOr<std::unique_ptr<LoanFlagView>> LoanFlagView::Map(Descriptor descriptor) {
  auto segment = MappedSegment::Map(std::move(descriptor), {.bytes_min = sizeof(uint32_t), .bytes_max = PageBytes()});
  if (!segment.ok()) return segment.status();
  return std::unique_ptr<LoanFlagView>(new LoanFlagView(*std::move(segment)));
}

bool LoanFlagView::StillLent() const {
  Fence();
  return __atomic_load_n(reinterpret_cast<const uint32_t*>(segment_->data()), __ATOMIC_RELAXED) == kLent;
}

}  // namespace slackline::shm
