// Batches in memory that devices copy from beside everything else.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/model/batch_memory.h"

namespace slackline::worker {

// Pinned, where the system lets it; else the program's memory. It keeps nothing that it was given back: who has batches
// uses them again.
//
// Thread-safety: safe.
// Invariant:     what is out is what its batches hold.
class PinnedBatches final : public BatchMemory {
 public:
  using Block = std::shared_ptr<std::byte[]>;
  struct Host {
    // Memory that is pinned; called from the threads that make batches, several at a time.
    std::function<absl::StatusOr<Block>(size_t bytes)> pin;
    // The first time that there was none.
    std::function<void(const absl::Status& why)> on_refusal;
  };

  explicit PinnedBatches(Host host) : host_(std::move(host)) {}

  void* Allocate(size_t bytes) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Free(void* memory) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const Host host_;
  absl::Mutex mutex_;
  std::map<const void*, Block> out_ ABSL_GUARDED_BY(mutex_);
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace slackline::worker
