// The encodings that values may have on the wire, and their lengths.
//
// Values are float32 in memory. An encoded sub-push (one shard's part of a gradient, `elements` values from the shard's
// beginning) is a sequence of items. All numbers are little-endian:
//
//   encoded := fp32* | bf16* | fp16* | block* | pair*
//   fp32    := 4 bytes: IEEE binary32
//   bf16    := 2 bytes: the upper half of an fp32
//   fp16    := 2 bytes: IEEE binary16
//   block   := scale:fp32 (q:int8){1024}       of 1024 values, value = scale x q; the last block may be shorter
//   pair    := index:uint32 value:fp32         index from the shard's beginning, strictly ascending; what is not
//                                              named is 0
//
// fp32, bf16, fp16 and block have an item for every value. Top-k has as many pairs as the fraction allows, or fewer. A
// message ends at the end of an item (a block is one item), see Granularity().
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline::codec {

// Numbers are those of wire::Encoding.
enum class Encoding { kFp32 = 1, kBf16 = 2, kFp16 = 3, kInt8 = 4, kTopK = 5 };

struct Codec {
  Encoding encoding = Encoding::kFp32;
  // Top-k only: the share of the elements that is sent, above 0 and at most 1.
  double fraction = 0;

  bool operator==(const Codec&) const = default;
};

inline constexpr size_t kInt8BlockElements = 1024;
inline constexpr size_t kInt8BlockBytes = sizeof(float) + kInt8BlockElements;
// Largest scale of an int8 block. Above it, scale x q could be infinite.
inline constexpr float kInt8ScaleMax = std::numeric_limits<float>::max() / 128;

// An entry of the table of encodings. A new encoding needs an entry in codec.cc, values in protos/wire_types.proto, and
// a case in encode.cc, checker.cc and block_decoder.cc; the compiler warns of a switch that leaves it out.
struct EncodingFacts {
  Encoding encoding = Encoding::kFp32;
  // Name in the job file. The name of a sparse encoding is followed by ":F", the fraction.
  absl::string_view name;
  // Bytes of an item; see Granularity().
  uint64_t item_bytes = 0;
  // Returns the encoded length of `elements` elements; for a sparse encoding, the largest length.
  uint64_t (*bytes_max)(const Codec& codec, uint64_t elements) = nullptr;
  // True if an item is one element, so that the encodings of two chunks side by side are the encoding of both.
  bool by_element = false;
  // True if only some elements are sent, so that the length varies.
  bool sparse = false;
  // True if training does not learn well without error feedback.
  bool coarse = false;
};

// Returns all entries, by number.
absl::Span<const EncodingFacts> AllEncodings();
const EncodingFacts& FactsOf(Encoding encoding);
inline const EncodingFacts& FactsOf(const Codec& codec) { return FactsOf(codec.encoding); }

// Reads "fp32", "bf16", "fp16", "int8" or "topk:0.01".
//   kInvalidArgument  any other text
absl::StatusOr<Codec> ParseCodec(absl::string_view text);
// Returns the text that ParseCodec() reads.
std::string ToString(const Codec& codec);

// Returns the largest number of pairs that top-k sends for `elements` elements: the fraction, rounded up, and at least
// 1 if there are any elements.
uint64_t TopKPairsMax(const Codec& codec, uint64_t elements);

// Returns the encoded length of `elements` elements; for top-k, the largest length.
uint64_t EncodedBytesMax(const Codec& codec, uint64_t elements);
// Returns whether `elements` elements can have this encoded length.
bool IsEncodedLength(const Codec& codec, uint64_t elements, uint64_t bytes);
// Returns the bytes of one item. A sub-push may be split into messages at multiples of it.
uint64_t Granularity(const Codec& codec);

}  // namespace slackline::codec
