// Decodes wire bytes to values, block by block, so that a step over the shard finds the values in the nearest cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/base/byte_segments.h"
#include "common/codec/codec.h"
#include "common/codec/topk.h"

namespace slackline::codec {

// Copies: wire -> block; none if the float32 values lie in one piece, at any alignment.
//
// Thread-safety: none.
// Ownership:     borrows the bytes, which Checker must have checked.
class BlockDecoder {
 public:
  BlockDecoder(const Codec& codec, const ByteSegments& bytes);

  // Returns the next out.size() values, in place if possible, otherwise in `out`. An element that top-k does not name
  // is 0.
  // Requires: the bytes hold that many more (top-k: any number).
  const float* Next(absl::Span<float> out);

 private:
  using Decode = void (*)(size_t elements, const std::byte* in, float* out);

  const float* NextFp32(absl::Span<float> out);
  void NextHalves(Decode decode, absl::Span<float> out);
  void NextInt8(absl::Span<float> out);
  void NextPairs(absl::Span<float> out);
  void ReadPair();

  const Encoding encoding_;
  ByteReader reader_;
  // State of the int8 block that was begun.
  float scale_ = 0;
  size_t block_left_ = 0;
  // Top-k: number of elements returned so far, and the next pair.
  uint64_t position_ = 0;
  IndexedValue pair_;
  bool has_pair_ = false;
};

}  // namespace slackline::codec
