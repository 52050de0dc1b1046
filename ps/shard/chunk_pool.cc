#include "ps/shard/chunk_pool.h"

#include <algorithm>

namespace slackline::ps {

void ChunkRef::Release() {
  if (chunk_ == nullptr) return;
  // Release: our reads happen before the next owner's writes. Acquire: the last one out sees all of them.
  if (chunk_->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::shared_ptr<ChunkPool> pool = std::move(chunk_->pool);
  pool->Return(std::unique_ptr<Chunk>(chunk_));
}

ChunkPool::ChunkPool(const ChunkPoolOptions& options)
    : options_(options),
      stride_(Stride(options.chunk_elements)),
      places_(options.segment == nullptr || stride_ == 0 ? 0 : options.segment->bytes() / stride_) {}

ChunkRef ChunkPool::Take() {
  std::unique_ptr<Chunk> chunk = TakeFree();
  if (chunk == nullptr) chunk = MakeChunk();
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
  if (Keep(chunk) || !chunk->place) return;
  // Before others may have the place: what they write there must not be lost.
  options_.segment->Release({.offset = *chunk->place * stride_, .bytes = stride_});
  absl::MutexLock lock(&mutex_);
  vacant_.push_back(*chunk->place);
}

std::unique_ptr<Chunk> ChunkPool::TakeFree() {
  absl::MutexLock lock(&mutex_);
  if (free_.empty()) return nullptr;
  std::unique_ptr<Chunk> chunk = std::move(free_.back());
  free_.pop_back();
  return chunk;
}

bool ChunkPool::Keep(std::unique_ptr<Chunk>& chunk) {
  // A chunk that only found no room in the segment makes way for one that does.
  if (options_.segment != nullptr && !chunk->place) return false;
  absl::MutexLock lock(&mutex_);
  if (free_.size() >= options_.free_max) return false;
  free_.push_back(std::move(chunk));
  return true;
}

std::optional<size_t> ChunkPool::TakePlace() {
  absl::MutexLock lock(&mutex_);
  if (!vacant_.empty()) {
    const size_t place = vacant_.back();
    vacant_.pop_back();
    return place;
  }
  if (places_taken_ == places_) return std::nullopt;
  return places_taken_++;
}

std::unique_ptr<Chunk> ChunkPool::MakeChunk() {
  auto chunk = std::make_unique<Chunk>();
  chunk->place = TakePlace();
  if (chunk->place) {
    chunk->values = reinterpret_cast<float*>(options_.segment->data() + *chunk->place * stride_);
  } else {
    chunk->heap = AllocateAlignedFloats(options_.chunk_elements);
    chunk->values = chunk->heap.get();
  }
  return chunk;
}

}  // namespace slackline::ps
