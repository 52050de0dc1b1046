#include "common/codec/codec.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace slackline::codec {
namespace {

static_assert(std::endian::native == std::endian::little, "values are little-endian on the wire and used as they are");

constexpr uint64_t kPairBytes = sizeof(uint32_t) + sizeof(float);

absl::Status Unknown(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("encoding is \"", text,
                                                 "\"; allowed are fp32, bf16, fp16, int8, and topk:F with a fraction F "
                                                 "above 0 and at most 1"));
}

// The fewest digits that read back as the same number.
std::string Shortest(double number) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), number).ptr);
}

}  // namespace

absl::StatusOr<Codec> ParseCodec(absl::string_view text) {
  for (Encoding encoding : {Encoding::kFp32, Encoding::kBf16, Encoding::kFp16, Encoding::kInt8}) {
    if (const Codec codec{.encoding = encoding}; text == ToString(codec)) return codec;
  }
  absl::string_view number = text;
  Codec codec{.encoding = Encoding::kTopK};
  if (!absl::ConsumePrefix(&number, "topk:") || !absl::SimpleAtod(number, &codec.fraction)) return Unknown(text);
  if (!(codec.fraction > 0 && codec.fraction <= 1)) return Unknown(text);
  return codec;
}

std::string ToString(const Codec& codec) {
  switch (codec.encoding) {
    case Encoding::kFp32:
      return "fp32";
    case Encoding::kBf16:
      return "bf16";
    case Encoding::kFp16:
      return "fp16";
    case Encoding::kInt8:
      return "int8";
    case Encoding::kTopK:
      return absl::StrCat("topk:", Shortest(codec.fraction));
  }
  return "unknown";
}

uint64_t TopKPairsMax(const Codec& codec, uint64_t elements) {
  const auto share = static_cast<uint64_t>(std::ceil(codec.fraction * static_cast<double>(elements)));
  return std::min(elements, std::max<uint64_t>(share, 1));
}

uint64_t EncodedBytesMax(const Codec& codec, uint64_t elements) {
  switch (codec.encoding) {
    case Encoding::kFp32:
      return elements * sizeof(float);
    case Encoding::kBf16:
    case Encoding::kFp16:
      return elements * sizeof(uint16_t);
    case Encoding::kInt8:
      return elements + (elements + kInt8BlockElements - 1) / kInt8BlockElements * sizeof(float);
    case Encoding::kTopK:
      return TopKPairsMax(codec, elements) * kPairBytes;
  }
  return 0;
}

bool IsEncodedLength(const Codec& codec, uint64_t elements, uint64_t bytes) {
  const uint64_t bytes_max = EncodedBytesMax(codec, elements);
  return codec.encoding == Encoding::kTopK ? bytes % kPairBytes == 0 && bytes <= bytes_max : bytes == bytes_max;
}

uint64_t Granularity(const Codec& codec) {
  switch (codec.encoding) {
    case Encoding::kFp32:
      return sizeof(float);
    case Encoding::kBf16:
    case Encoding::kFp16:
      return sizeof(uint16_t);
    case Encoding::kInt8:
      return kInt8BlockBytes;
    case Encoding::kTopK:
      return kPairBytes;
  }
  return 1;
}

}  // namespace slackline::codec
