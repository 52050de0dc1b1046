#include "ps/slice.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace slackline::ps {
namespace {

size_t ChunkCount(const SliceShape& shape) {
  SLACKLINE_CHECK(shape.chunk_elements > 0);
  return shape.elements / shape.chunk_elements + (shape.elements % shape.chunk_elements != 0);
}

// What a chunk's buffer has room for.
uint64_t BufferElements(const SliceShape& shape) { return std::min(shape.chunk_elements, shape.elements); }

// Whoever pulls after every step finds its buffers here again.
ChunkPoolOptions PoolOptions(const SliceShape& shape, SliceStorage storage) {
  return {.chunk_elements = BufferElements(shape),
          .free_max = ChunkCount(shape) * storage.versions_kept,
          .segment = std::move(storage.segment)};
}

}  // namespace

void SliceView::CopyTo(absl::Span<float> out) const {
  SLACKLINE_CHECK(out.size() == elements());
  for (size_t index = 0; index < chunks(); ++index) {
    const absl::Span<const float> values = chunk(index);
    std::copy(values.begin(), values.end(), out.begin());
    out.remove_prefix(values.size());
  }
}

Slice::Slice(const SliceShape& shape, SliceStorage storage)
    : shape_(shape), pool_(std::make_shared<ChunkPool>(PoolOptions(shape, std::move(storage)))) {
  chunks_.reserve(ChunkCount(shape));
  for (size_t index = 0; index < ChunkCount(shape); ++index) chunks_.push_back(pool_->TakeZeroed());
}

uint64_t Slice::SegmentBytes(const SliceShape& shape, size_t versions_max) {
  return ChunkCount(shape) * versions_max * ChunkPool::Stride(BufferElements(shape));
}

void Slice::Update(absl::FunctionRef<void(uint64_t begin, absl::Span<float> values)> change) {
  uint64_t begin = 0;
  for (ChunkRef& chunk : chunks_) {
    const uint64_t end = begin + std::min(shape_.chunk_elements, shape_.elements - begin);
    const bool in_place = chunk.Exclusive();
    ChunkRef target = in_place ? std::move(chunk) : pool_->Take();
    float* to = target.mutable_values();
    for (uint64_t block = begin; block < end; block += kBlockElements) {
      const absl::Span<float> values(to + (block - begin), std::min<uint64_t>(kBlockElements, end - block));
      if (!in_place) std::memcpy(values.data(), chunk.values() + (block - begin), values.size() * sizeof(float));
      change(block, values);
    }
    chunk = std::move(target);
    chunks_copied_ += !in_place;
    begin = end;
  }
}

}  // namespace slackline::ps
