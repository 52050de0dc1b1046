// The chunks that a group leaves encoded, beside its buckets: what may be encoded, copied and announced as the sum
// grows downwards from the end of the flat vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/chunk_encoder.h"

namespace slackline::worker {

// [begin, end) of the flat vector.
struct Elements {
  uint64_t begin = 0;
  uint64_t end = 0;

  friend bool operator==(const Elements&, const Elements&) = default;
};

// [begin, end) of the chunks.
struct ChunkRange {
  size_t begin = 0;
  size_t end = 0;

  friend bool operator==(const ChunkRange&, const ChunkRange&) = default;
};

// A step's bytes lie in one block: room for each chunk's longest form, in their order; behind them, of each chunk, how
// many pairs it has if it is top-k. Chunks of one bucket are side by side there.
//
// Thread-safety: none; const calls are safe together.
class ChunkPlan {
 public:
  // Where kernels may write words of 8 bytes.
  static constexpr size_t kAlignment = 16;

  // Requires: chunks ascend and have no elements in common.
  explicit ChunkPlan(std::vector<PlannedChunk> chunks = {});

  bool empty() const { return chunks_.empty(); }
  const std::vector<PlannedChunk>& chunks() const { return chunks_; }
  // Of the largest chunk.
  uint64_t elements_max() const;

  // Where a chunk's bytes begin in the block; that behind the last: where they end.
  size_t place(size_t chunk) const { return places_[chunk]; }
  size_t count_place(size_t chunk) const { return places_.back() + chunk * sizeof(uint64_t); }
  size_t block_bytes() const { return count_place(chunks_.size()); }
  // Of the bytes in this block.
  size_t SizeIn(const std::byte* block, size_t chunk) const;

  // Chunks that are complete with the sum of [now, elements), and were not with that of [before, elements).
  ChunkRange CompleteIn(const Elements& bucket) const { return {FirstFrom(bucket.begin), FirstFrom(bucket.end)}; }
  // Elements of [begin, end) that are in no chunk: they travel as floats.
  std::vector<Elements> PlainIn(const Elements& bucket) const;
  // With the sum of [from, elements) all is there from here on: a chunk that is cut by `from` is not.
  uint64_t ReadyFrom(uint64_t from) const;

 private:
  // The first chunk that begins at `from` or behind it.
  size_t FirstFrom(uint64_t from) const;

  std::vector<PlannedChunk> chunks_;
  std::vector<size_t> places_;
};

}  // namespace slackline::worker
