// Buffers of a slice's chunks, counted references to them, and the few free ones that are kept for reuse.
//
// The count is our own and not a shared_ptr's: "nobody else holds it" must also mean that all their reads have
// happened, and shared_ptr::use_count() promises no such order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ps/aligned_floats.h"

namespace slackline::ps {

class ChunkPool;

// One buffer with its count. Only ChunkRef and ChunkPool touch it.
struct Chunk {
  AlignedFloats values;
  std::atomic<uint32_t> references = 0;
  // Where the buffer returns to; null while it is there.
  std::shared_ptr<ChunkPool> pool;
};

// A counted reference to a chunk. A moved-from reference is null.
//
// Thread-safety: distinct references to one chunk are safe on distinct threads.
class ChunkRef {
 public:
  ChunkRef() = default;
  ChunkRef(const ChunkRef& other) : chunk_(other.chunk_) {
    if (chunk_ != nullptr) chunk_->references.fetch_add(1, std::memory_order_relaxed);
  }
  ChunkRef(ChunkRef&& other) noexcept : chunk_(std::exchange(other.chunk_, nullptr)) {}
  ChunkRef& operator=(ChunkRef other) noexcept {
    std::swap(chunk_, other.chunk_);
    return *this;
  }
  ~ChunkRef() { Release(); }

  const float* values() const { return chunk_->values.get(); }
  // Requires: Exclusive().
  float* mutable_values() { return chunk_->values.get(); }
  // True when this is the only reference; everything that former holders read or wrote has then happened.
  bool Exclusive() const { return chunk_->references.load(std::memory_order_acquire) == 1; }

 private:
  friend class ChunkPool;
  explicit ChunkRef(Chunk* chunk) : chunk_(chunk) {}
  void Release();

  Chunk* chunk_ = nullptr;
};

struct ChunkPoolOptions {
  uint64_t chunk_elements = 0;
  // Free buffers kept; further ones go back to the system.
  size_t free_max = 0;
};

// Thread-safety: safe; chunks come back from the threads of the last readers.
class ChunkPool : public std::enable_shared_from_this<ChunkPool> {
 public:
  explicit ChunkPool(const ChunkPoolOptions& options) : options_(options) {}

  // A buffer with any content.
  ChunkRef Take() ABSL_LOCKS_EXCLUDED(mutex_);
  // A buffer of zeros.
  ChunkRef TakeZeroed() ABSL_LOCKS_EXCLUDED(mutex_);
  size_t free_buffers() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class ChunkRef;
  void Return(std::unique_ptr<Chunk> chunk) ABSL_LOCKS_EXCLUDED(mutex_);

  const ChunkPoolOptions options_;
  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<Chunk>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::ps
