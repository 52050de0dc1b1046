// Memory for a slice's chunks: buffers, counted references to them, and a few free buffers that are kept for reuse.
//
// Buffers lie on the heap or in a segment of shared memory. Processes on the same machine read a segment without a
// copy. When the segment is full, further buffers go to the heap, so the size of the segment affects only speed.
//
// ChunkRef has its own count instead of shared_ptr's: "nobody else holds it" must also mean that all reads of former
// holders have happened, and shared_ptr::use_count() promises no such order.
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

// Buffer with its reference count. Only ChunkRef and ChunkPool touch it.
struct Chunk {
  float* values = nullptr;
  // Owner of the values, unless they lie in the segment.
  AlignedFloats heap;
  // Index of the values' place in the segment; none if they lie on the heap.
  std::optional<size_t> place;
  std::atomic<uint32_t> references = 0;
  // Pool to which the buffer returns; null while the buffer is in the pool.
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
  // Returns the bytes from the beginning of the pool's segment to the values; none if they lie on the heap.
  std::optional<uint64_t> segment_offset() const;
  // Returns true if this is the only reference. All reads and writes of former holders have then happened.
  bool Exclusive() const { return chunk_->references.load(std::memory_order_acquire) == 1; }

 private:
  friend class ChunkPool;
  explicit ChunkRef(Chunk* chunk) : chunk_(chunk) {}
  void Release();

  Chunk* chunk_ = nullptr;
};

struct ChunkPoolOptions {
  uint64_t chunk_elements = 0;
  // Largest number of free buffers that are kept; the memory of further ones goes back to the system.
  size_t free_max = 0;
  // Segment in which the chunks lie, each on its own pages; null for the heap. Shared with the code that tells readers
  // of it; only the pool takes memory from it.
  std::shared_ptr<shm::Segment> segment = nullptr;
};

// Hands out buffers for chunks, and takes each back when its last reference is gone.
//
// Thread-safety: safe; buffers come back from the threads of the last readers.
// Invariant:     a place of the segment belongs to one chunk, or is free, or vacant, or was never taken.
class ChunkPool : public std::enable_shared_from_this<ChunkPool> {
 public:
  explicit ChunkPool(const ChunkPoolOptions& options);

  // Returns the bytes from one chunk in a segment to the next: whole pages, so that each chunk can be given back by
  // itself.
  static uint64_t Stride(uint64_t chunk_elements) { return shm::RoundUpToPages(chunk_elements * sizeof(float)); }

  // Returns a buffer with any content, in the segment if a place is left there.
  ChunkRef Take() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns a buffer of zeros.
  ChunkRef TakeZeroed() ABSL_LOCKS_EXCLUDED(mutex_);
  size_t free_buffers() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class ChunkRef;
  void Return(std::unique_ptr<Chunk> chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns a free buffer that still has its memory, or null.
  std::unique_ptr<Chunk> TakeFree() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true if the buffer is kept for reuse; `chunk` is then null.
  bool Keep(std::unique_ptr<Chunk>& chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<size_t> TakePlace() ABSL_LOCKS_EXCLUDED(mutex_);
  std::unique_ptr<Chunk> MakeChunk();

  const ChunkPoolOptions options_;
  const uint64_t stride_;
  // Number of chunks for which the segment has room.
  const size_t places_;

  mutable absl::Mutex mutex_;
  // Free buffers; last in, first out, because the values of the last are the likeliest to be in a cache. With a
  // segment, only buffers that lie in it.
  std::vector<std::unique_ptr<Chunk>> free_ ABSL_GUARDED_BY(mutex_);
  // Places whose memory went back to the system.
  std::vector<size_t> vacant_ ABSL_GUARDED_BY(mutex_);
  // Index of the first place that was never taken; all later ones were not taken either.
  size_t places_taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

inline std::optional<uint64_t> ChunkRef::segment_offset() const {
  if (!chunk_->place) return std::nullopt;
  return *chunk_->place * chunk_->pool->stride_;
}

}  // namespace slackline::ps
