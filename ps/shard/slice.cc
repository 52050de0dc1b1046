#include "ps/shard/slice.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

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

SliceView SliceView::First(uint64_t elements) const {
  SLACKLINE_CHECK(elements <= shape_.elements);
  SliceView first = *this;
  first.shape_.elements = elements;
  return first;
}

Slice::Slice(const SliceShape& shape, SliceStorage storage)
    : shape_(shape), pool_(std::make_shared<ChunkPool>(PoolOptions(shape, std::move(storage)))) {
  chunks_.reserve(ChunkCount(shape));
  for (size_t index = 0; index < ChunkCount(shape); ++index) chunks_.push_back(pool_->TakeZeroed());
}

uint64_t Slice::SegmentBytes(const SliceShape& shape, size_t versions_max) {
  return ChunkCount(shape) * versions_max * ChunkPool::Stride(BufferElements(shape));
}

void Slice::UpdateFirst(uint64_t elements, absl::FunctionRef<void(uint64_t begin, absl::Span<float> values)> change) {
  SLACKLINE_CHECK(elements <= shape_.elements);
  SliceWriter writer(*this);
  for (uint64_t begin = 0; begin < elements;) {
    const size_t size = std::min({uint64_t{kBlockElements}, writer.left_in_chunk(), elements - begin});
    change(begin, {writer.Next(size), size});
    begin += size;
  }
  writer.SkipRestOfChunk();
}

void SliceWriter::SkipRestOfChunk() {
  if (written_ > 0) Next(left_in_chunk());
}

SliceWriter::~SliceWriter() { SLACKLINE_CHECK(written_ == 0); }

// A piece stays in a core's cache, and is so large that the C library copies it without reading what the copy
// overwrites (from 4 KiB on, with AVX2). A step of SGD took 1.2 to 1.4 times as long when pieces had 2 KiB.
void SliceWriter::CopyUntil(uint64_t end) {
  constexpr uint64_t kPieceElements = (8 << 10) / sizeof(float);
  while (copied_ < end) {
    const uint64_t size = std::min(kPieceElements, ChunkElements() - copied_);
    std::memcpy(target_.mutable_values() + copied_, slice_->chunks_[chunk_].values() + copied_, size * sizeof(float));
    copied_ += size;
  }
}

uint64_t SliceWriter::ChunkElements() const {
  const SliceShape& shape = slice_->shape_;
  return std::min(shape.chunk_elements, shape.elements - chunk_ * shape.chunk_elements);
}

uint64_t SliceWriter::left_in_chunk() const { return chunk_ < slice_->chunks_.size() ? ChunkElements() - written_ : 0; }

float* SliceWriter::Next(size_t elements) {
  const uint64_t left = left_in_chunk();
  SLACKLINE_CHECK(0 < elements && elements <= left);
  ChunkRef& chunk = slice_->chunks_[chunk_];
  if (written_ == 0) {
    in_place_ = chunk.Exclusive();
    target_ = in_place_ ? std::move(chunk) : slice_->pool_->Take();
    copied_ = 0;
  }
  float* const values = target_.mutable_values() + written_;
  written_ += elements;
  if (!in_place_) CopyUntil(written_);
  if (elements == left) {
    chunk = std::move(target_);
    slice_->chunks_copied_ += !in_place_;
    ++chunk_;
    written_ = 0;
  }
  return values;
}

}  // namespace slackline::ps
