// PinnedBatches: memory for batches that devices copy asynchronously.
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
#include "images/base/batch_memory.h"

namespace slackline::worker {

// PinnedBatches allocates pinned memory if the system allows it, and ordinary memory otherwise. It does not keep freed
// memory: the owners of batches reuse them.
//
// Thread-safety: safe.
// Invariant:     `out_` holds exactly the memory of existing batches.
class PinnedBatches final : public images::BatchMemory {
 public:
  using Block = std::shared_ptr<std::byte[]>;
  struct Host {
    // Allocates pinned memory. Called from the threads that make batches, several at a time.
    std::function<absl::StatusOr<Block>(size_t bytes)> pin;
    // Reports the first allocation that could not be pinned.
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
