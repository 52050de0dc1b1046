// ChunkPlan: the chunks that a group leaves encoded, in relation to its buckets. It says what may be encoded, copied
// and announced as the sum grows downwards from the end of the flat vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/base/chunk_encoder.h"

namespace slackline::worker {

// Range [begin, end) of the flat vector.
struct Elements {
  uint64_t begin = 0;
  uint64_t end = 0;

  friend bool operator==(const Elements&, const Elements&) = default;
};

// Range [begin, end) of the chunks.
struct ChunkRange {
  size_t begin = 0;
  size_t end = 0;

  friend bool operator==(const ChunkRange&, const ChunkRange&) = default;
};

// ChunkPlan lays out a step's bytes in one block. First, each chunk has room for its longest form, in
// order. Then each chunk has a number, which counts its pairs if the chunk is top-k. Chunks of one bucket are adjacent.
//
// Thread-safety: none; const calls are safe together.
class ChunkPlan {
 public:
  // Alignment of chunks, since kernels may write words of 8 bytes.
  static constexpr size_t kAlignment = 16;

  // Requires: chunks ascend and have no elements in common.
  explicit ChunkPlan(std::vector<PlannedChunk> chunks = {});

  bool empty() const { return chunks_.empty(); }
  const std::vector<PlannedChunk>& chunks() const { return chunks_; }
  // Number of elements in the largest chunk.
  uint64_t elements_max() const;

  // Returns the offset of a chunk's bytes in the block; for chunks().size(), the end of the last chunk.
  size_t place(size_t chunk) const { return places_[chunk]; }
  size_t count_place(size_t chunk) const { return places_.back() + chunk * sizeof(uint64_t); }
  size_t block_bytes() const { return count_place(chunks_.size()); }
  // Returns the number of bytes that a chunk has in this block.
  size_t SizeIn(const std::byte* block, size_t chunk) const;

  // Returns the chunks that become complete when `bucket` is summed in addition to all elements behind it.
  ChunkRange CompleteIn(const Elements& bucket) const { return {FirstFrom(bucket.begin), FirstFrom(bucket.end)}; }
  // Returns the elements of `bucket` that are in no chunk. They are sent as floats.
  std::vector<Elements> PlainIn(const Elements& bucket) const;
  // Returns the first element from which everything is ready, once [from, elements) is summed. A chunk that `from` cuts
  // is not ready.
  uint64_t ReadyFrom(uint64_t from) const;

 private:
  // Returns the first chunk that begins at `from` or later.
  size_t FirstFrom(uint64_t from) const;

  std::vector<PlannedChunk> chunks_;
  std::vector<size_t> places_;
};

}  // namespace slackline::worker
