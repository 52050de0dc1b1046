// Buffers of a slice's chunks, counted references to them, and the few free ones that are kept for reuse.
//
// The buffers lie on the heap, or in a segment of shared memory, from which processes of the same machine read them
// without a copy. A segment has room for so many chunks; further ones lie on the heap, so that only speed depends on
// its size.
//
// The count is our own and not a shared_ptr's: "nobody else holds it" must also mean that all their reads have
// happened, and shared_ptr::use_count() promises no such order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/optimizer/aligned_floats.h"
#include "common/shm/segment.h"

namespace slackline::ps {

class ChunkPool;

// One buffer with its count. Only ChunkRef and ChunkPool touch it.
struct Chunk {
  float* values = nullptr;
  // Owns the values, unless they lie in the segment.
  AlignedFloats heap;
  // Where they lie in the segment.
  std::optional<size_t> place;
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

  const float* values() const { return chunk_->values; }
  // Requires: Exclusive().
  float* mutable_values() { return chunk_->values; }
  // Bytes from the beginning of the pool's segment to the values; none when they lie on the heap.
  std::optional<uint64_t> segment_offset() const;
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
  // Free buffers kept; the memory of further ones goes back to the system.
  size_t free_max = 0;
  // Where chunks lie, each on pages of its own; null for the heap. Shared with whoever tells readers of it; the pool
  // is the only one that takes memory from it.
  std::shared_ptr<shm::Segment> segment = nullptr;
};

// Thread-safety: safe; chunks come back from the threads of the last readers.
// Invariant:     a place of the segment belongs to one chunk, or is free, or vacant, or was never taken.
class ChunkPool : public std::enable_shared_from_this<ChunkPool> {
 public:
  explicit ChunkPool(const ChunkPoolOptions& options);

  // Bytes from one chunk in a segment to the next: whole pages, so that each can be given back by itself.
  static uint64_t Stride(uint64_t chunk_elements) { return shm::RoundUpToPages(chunk_elements * sizeof(float)); }

  // A buffer with any content. In the segment if a place is left there.
  ChunkRef Take() ABSL_LOCKS_EXCLUDED(mutex_);
  // A buffer of zeros.
  ChunkRef TakeZeroed() ABSL_LOCKS_EXCLUDED(mutex_);
  size_t free_buffers() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class ChunkRef;
  void Return(std::unique_ptr<Chunk> chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  // A free buffer of which the memory is still there, or null.
  std::unique_ptr<Chunk> TakeFree() ABSL_LOCKS_EXCLUDED(mutex_);
  // True if the buffer is kept for reuse; `chunk` is null then.
  bool Keep(std::unique_ptr<Chunk>& chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<size_t> TakePlace() ABSL_LOCKS_EXCLUDED(mutex_);
  std::unique_ptr<Chunk> MakeChunk();

  const ChunkPoolOptions options_;
  const uint64_t stride_;
  // How many chunks the segment has room for.
  const size_t places_;

  mutable absl::Mutex mutex_;
  // Last in, first out: its values are the likeliest to be in a cache. With a segment, only chunks that lie there.
  std::vector<std::unique_ptr<Chunk>> free_ ABSL_GUARDED_BY(mutex_);
  // Places whose memory went back to the system.
  std::vector<size_t> vacant_ ABSL_GUARDED_BY(mutex_);
  // Places from here on were never taken.
  size_t places_taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

inline std::optional<uint64_t> ChunkRef::segment_offset() const {
  if (!chunk_->place) return std::nullopt;
  return *chunk_->place * chunk_->pool->stride_;
}

}  // namespace slackline::ps
