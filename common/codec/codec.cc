#include "common/codec/codec.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"

namespace slackline::codec {
namespace {

static_assert(std::endian::native == std::endian::little, "values are little-endian on the wire and used as they are");

constexpr uint64_t kPairBytes = sizeof(uint32_t) + sizeof(float);

template <uint64_t kBytes>
uint64_t BytesByElement(const Codec& /*codec*/, uint64_t elements) {
  return elements * kBytes;
}

uint64_t Int8BytesMax(const Codec& /*codec*/, uint64_t elements) {
  return elements + (elements + kInt8BlockElements - 1) / kInt8BlockElements * sizeof(float);
}

uint64_t TopKBytesMax(const Codec& codec, uint64_t elements) { return TopKPairsMax(codec, elements) * kPairBytes; }

constexpr EncodingFacts kEncodings[] = {
    {.encoding = Encoding::kFp32, .name = "fp32", .item_bytes = 4, .bytes_max = BytesByElement<4>, .by_element = true},
    {.encoding = Encoding::kBf16, .name = "bf16", .item_bytes = 2, .bytes_max = BytesByElement<2>, .by_element = true},
    {.encoding = Encoding::kFp16, .name = "fp16", .item_bytes = 2, .bytes_max = BytesByElement<2>, .by_element = true},
    {.encoding = Encoding::kInt8,
     .name = "int8",
     .item_bytes = kInt8BlockBytes,
     .bytes_max = Int8BytesMax,
     .coarse = true},
    {.encoding = Encoding::kTopK,
     .name = "topk",
     .item_bytes = kPairBytes,
     .bytes_max = TopKBytesMax,
     .sparse = true,
     .coarse = true},
};

absl::Status Unknown(absl::string_view text) {
  std::vector<std::string> names;
  for (const EncodingFacts& facts : kEncodings) {
    names.push_back(facts.sparse ? absl::StrCat("and ", facts.name, ":F with a fraction F above 0 and at most 1")
                                 : std::string(facts.name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("encoding is \"", text, "\"; allowed are ", absl::StrJoin(names, ", ")));
}

// The fewest digits that read back as the same number.
std::string Shortest(double number) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), number).ptr);
}

}  // namespace

absl::Span<const EncodingFacts> AllEncodings() { return kEncodings; }

const EncodingFacts& FactsOf(Encoding encoding) {
  const EncodingFacts* found = nullptr;
  for (const EncodingFacts& facts : kEncodings) {
    if (facts.encoding == encoding) found = &facts;
  }
  SLACKLINE_CHECK(found != nullptr);
  return *found;
}

absl::StatusOr<Codec> ParseCodec(absl::string_view text) {
  for (const EncodingFacts& facts : kEncodings) {
    Codec codec{.encoding = facts.encoding};
    if (!facts.sparse && text == facts.name) return codec;
    absl::string_view number = text;
    if (!facts.sparse || !absl::ConsumePrefix(&number, absl::StrCat(facts.name, ":"))) continue;
    if (absl::SimpleAtod(number, &codec.fraction) && codec.fraction > 0 && codec.fraction <= 1) return codec;
  }
  return Unknown(text);
}

std::string ToString(const Codec& codec) {
  const EncodingFacts& facts = FactsOf(codec);
  return facts.sparse ? absl::StrCat(facts.name, ":", Shortest(codec.fraction)) : std::string(facts.name);
}

uint64_t TopKPairsMax(const Codec& codec, uint64_t elements) {
  const auto share = static_cast<uint64_t>(std::ceil(codec.fraction * static_cast<double>(elements)));
  return std::min(elements, std::max<uint64_t>(share, 1));
}

uint64_t EncodedBytesMax(const Codec& codec, uint64_t elements) { return FactsOf(codec).bytes_max(codec, elements); }

bool IsEncodedLength(const Codec& codec, uint64_t elements, uint64_t bytes) {
  const EncodingFacts& facts = FactsOf(codec);
  const uint64_t bytes_max = facts.bytes_max(codec, elements);
  return facts.sparse ? bytes % facts.item_bytes == 0 && bytes <= bytes_max : bytes == bytes_max;
}

uint64_t Granularity(const Codec& codec) { return FactsOf(codec).item_bytes; }

}  // namespace slackline::codec
