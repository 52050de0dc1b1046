// The forms that values may take on the wire, and how long they are.
//
// Values are float32 in memory. An encoded sub-push (one shard's part of a gradient, `elements` values from the
// shard's beginning) is a run of items, all numbers little-endian:
//
//   encoded := fp32* | bf16* | fp16* | block* | pair*
//   fp32    := 4 bytes: IEEE binary32
//   bf16    := 2 bytes: the upper half of an fp32
//   fp16    := 2 bytes: IEEE binary16
//   block   := scale:fp32 (q:int8){1024}       of 1024 values, value = scale x q; the last block may be shorter
//   pair    := index:uint32 value:fp32         index from the shard's beginning, strictly ascending; what is not
//                                              named is 0
//
// fp32, bf16, fp16 and block have an item for every value; pairs are as many as the fraction allows, or fewer. A
// message ends where an item ends (a block is one item), see Granularity().
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace slackline::codec {

enum class Encoding { kFp32, kBf16, kFp16, kInt8, kTopK };

struct Codec {
  Encoding encoding = Encoding::kFp32;
  // Top-k only: the share of the elements that is sent, above 0 and at most 1.
  double fraction = 0;

  bool operator==(const Codec&) const = default;
};

inline constexpr size_t kInt8BlockElements = 1024;
inline constexpr size_t kInt8BlockBytes = sizeof(float) + kInt8BlockElements;
// Above it, scale x q could be infinite.
inline constexpr float kInt8ScaleMax = std::numeric_limits<float>::max() / 128;

// Reads "fp32", "bf16", "fp16", "int8" or "topk:0.01".
//   kInvalidArgument  anything else
absl::StatusOr<Codec> ParseCodec(absl::string_view text);
// What ParseCodec() reads.
std::string ToString(const Codec& codec);

// Pairs that top-k sends of so many elements, at most: the fraction, rounded up, at least 1 of any.
uint64_t TopKPairsMax(const Codec& codec, uint64_t elements);

// Length of so many elements; of top-k the largest length.
uint64_t EncodedBytesMax(const Codec& codec, uint64_t elements);
// Whether so many elements can have this length.
bool IsEncodedLength(const Codec& codec, uint64_t elements, uint64_t bytes);
// The bytes of one item: a sub-push may be cut into messages at multiples of it.
uint64_t Granularity(const Codec& codec);

}  // namespace slackline::codec
