#include "ps/chunk_pool.h"

#include <algorithm>

namespace slackline::ps {

void ChunkRef::Release() {
  if (chunk_ == nullptr) return;
  // Release: our reads happen before the next owner's writes. Acquire: the last one out sees all of them.
  if (chunk_->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::shared_ptr<ChunkPool> pool = std::move(chunk_->pool);
  pool->Return(std::unique_ptr<Chunk>(chunk_));
}

ChunkRef ChunkPool::Take() {
  std::unique_ptr<Chunk> chunk;
  {
    absl::MutexLock lock(&mutex_);
    if (!free_.empty()) {
      chunk = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (chunk == nullptr) {
    chunk = std::make_unique<Chunk>();
    chunk->values = AllocateAlignedFloats(options_.chunk_elements);
  }
  chunk->pool = shared_from_this();
  chunk->references.store(1, std::memory_order_relaxed);
  return ChunkRef(chunk.release());
}

ChunkRef ChunkPool::TakeZeroed() {
  ChunkRef chunk = Take();
  std::fill_n(chunk.mutable_values(), options_.chunk_elements, 0.0f);
  return chunk;
}

size_t ChunkPool::free_buffers() const {
  absl::MutexLock lock(&mutex_);
  return free_.size();
}

void ChunkPool::Return(std::unique_ptr<Chunk> chunk) {
  absl::MutexLock lock(&mutex_);
  // What does not fit is freed after the lock is gone: `chunk` outlives `lock`.
  if (free_.size() < options_.free_max) free_.push_back(std::move(chunk));
}

}  // namespace slackline::ps
