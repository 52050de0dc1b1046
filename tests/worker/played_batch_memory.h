// Memory of batches of which a test sees every block.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/group/pinned_batches.h"

namespace slackline::worker {

// A fake host that pins memory. A block is given back to the program's memory at once, so that the address sanitizer
// sees late reads.
//
// Thread-safety: safe.
class PlayedHost {
 public:
  // Makes the host pin nothing while `refuses` is true.
  void Refuse(bool refuses) {
    absl::MutexLock lock(&mutex_);
    refuses_ = refuses;
  }
  // Returns whether these floats are in pinned memory.
  bool Pinned(absl::Span<const float> floats) const {
    absl::MutexLock lock(&mutex_);
    const auto* begin = reinterpret_cast<const std::byte*>(floats.data());
    const auto behind = pinned_.upper_bound(begin);
    if (behind == pinned_.begin()) return false;
    const auto& [block, bytes] = *std::prev(behind);
    return begin + floats.size() * sizeof(float) <= block + bytes;
  }
  size_t blocks() const {
    absl::MutexLock lock(&mutex_);
    return pinned_.size();
  }
  size_t bytes() const {
    absl::MutexLock lock(&mutex_);
    size_t sum = 0;
    for (const auto& [block, bytes] : pinned_) sum += bytes;
    return sum;
  }
  // Numbers of pins and of refusals so far.
  int pins() const {
    absl::MutexLock lock(&mutex_);
    return pins_;
  }
  int refusals() const {
    absl::MutexLock lock(&mutex_);
    return refusals_;
  }

  PinnedBatches& memory() { return memory_; }

 private:
  absl::StatusOr<PinnedBatches::Block> Pin(size_t bytes) {
    absl::MutexLock lock(&mutex_);
    if (refuses_) return absl::InternalError("no more pages are to be had");
    ++pins_;
    auto* const block = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{images::kBatchAlignment}));
    pinned_.emplace(block, bytes);
    return PinnedBatches::Block(block, [this](std::byte* mine) { Unpin(mine); });
  }
  void Unpin(std::byte* block) {
    {
      absl::MutexLock lock(&mutex_);
      EXPECT_EQ(pinned_.erase(block), 1u);
    }
    ::operator delete (block, std::align_val_t{images::kBatchAlignment});
  }
  void OnRefusal() {
    absl::MutexLock lock(&mutex_);
    ++refusals_;
  }

  mutable absl::Mutex mutex_;
  bool refuses_ ABSL_GUARDED_BY(mutex_) = false;
  int pins_ ABSL_GUARDED_BY(mutex_) = 0;
  int refusals_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<const std::byte*, size_t> pinned_ ABSL_GUARDED_BY(mutex_);
  PinnedBatches memory_{
      {.pin = [this](size_t bytes) { return Pin(bytes); }, .on_refusal = [this](const absl::Status&) { OnRefusal(); }}};
};

}  // namespace slackline::worker
