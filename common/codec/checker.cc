#include "common/codec/checker.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/kernels.h"
#include "common/codec/topk.h"

namespace slackline::codec {
namespace {

using Predicate = bool (*)(size_t elements, const std::byte* values);

// Whole values are checked where they lie; those across a border are put together first.
bool AllAre(Predicate finite, size_t value_bytes, const ByteSegments& bytes) {
  if (bytes.size() % value_bytes != 0) return false;
  ByteReader reader(bytes);
  while (reader.left() > 0) {
    if (const size_t whole = reader.contiguous_left() / value_bytes; whole > 0) {
      if (!finite(whole, reader.contiguous(whole * value_bytes))) return false;
      reader.Skip(whole * value_bytes);
    } else {
      std::byte across[sizeof(float)];
      reader.Read(across, value_bytes);
      if (!finite(1, across)) return false;
    }
  }
  return true;
}

void SkipAcross(ByteReader& reader, size_t size) {
  while (size > 0) {
    const size_t piece = std::min(size, reader.contiguous_left());
    reader.Skip(piece);
    size -= piece;
  }
}

// False for NaN too.
bool IsScale(float scale) { return scale <= kInt8ScaleMax && !std::signbit(scale); }

absl::Status Invalid(absl::string_view text) { return absl::InvalidArgumentError(text); }

}  // namespace

bool AllFinite(Encoding encoding, const ByteSegments& bytes) {
  SLACKLINE_CHECK(FactsOf(encoding).by_element);
  if (encoding == Encoding::kFp32) return AllAre(AllFiniteFp32, sizeof(float), bytes);
  return AllAre(encoding == Encoding::kBf16 ? AllFiniteBf16 : AllFiniteFp16, sizeof(uint16_t), bytes);
}

Checker::Checker(const Codec& codec, uint64_t elements) : codec_(codec), elements_(elements) {}

absl::Status Checker::Add(const ByteSegments& bytes) {
  absl::Status status = CheckLength(bytes.size());
  if (!status.ok()) return status;
  switch (codec_.encoding) {
    case Encoding::kFp32:
    case Encoding::kBf16:
    case Encoding::kFp16:
      status = CheckValues(bytes);
      break;
    case Encoding::kInt8:
      status = CheckScales(bytes);
      break;
    case Encoding::kTopK:
      status = CheckPairs(bytes);
      break;
  }
  if (status.ok()) bytes_ += bytes.size();
  return status;
}

absl::Status Checker::Finish() const {
  if (IsEncodedLength(codec_, elements_, bytes_)) return absl::OkStatus();
  return Invalid(absl::StrCat("push has ", bytes_, " bytes; ", elements_, " elements as ", ToString(codec_), " have ",
                              EncodedBytesMax(codec_, elements_)));
}

absl::Status Checker::CheckLength(uint64_t more) const {
  const uint64_t bytes_max = EncodedBytesMax(codec_, elements_);
  if (more > bytes_max - bytes_) {
    return Invalid(absl::StrCat("push has ", bytes_ + more, " bytes or more; ", elements_, " elements as ",
                                ToString(codec_), " have ", bytes_max, " at most"));
  }
  const uint64_t item = Granularity(codec_);
  if (more % item != 0 && bytes_ + more != bytes_max) {
    return Invalid(absl::StrCat("payload has ", more, " bytes; allowed for ", ToString(codec_), " is a multiple of ",
                                item, ", but for the last"));
  }
  return absl::OkStatus();
}

absl::Status Checker::CheckValues(const ByteSegments& bytes) const {
  if (AllFinite(codec_.encoding, bytes)) return absl::OkStatus();
  const uint64_t value_bytes = Granularity(codec_);
  return Invalid(absl::StrCat("a value of elements ", bytes_ / value_bytes, " to ",
                              (bytes_ + bytes.size()) / value_bytes, " is not finite"));
}

absl::Status Checker::CheckScales(const ByteSegments& bytes) const {
  ByteReader reader(bytes);
  for (uint64_t block = bytes_ / kInt8BlockBytes; reader.left() > 0; ++block) {
    float scale;
    if (reader.left() <= sizeof(scale)) return Invalid("the last int8 block has no values");
    reader.Read(&scale, sizeof(scale));
    if (!IsScale(scale)) {
      return Invalid(
          absl::StrCat("the scale of int8 block ", block, " is ", scale, "; allowed is 0 to ", kInt8ScaleMax));
    }
    SkipAcross(reader, std::min(kInt8BlockElements, reader.left()));
  }
  return absl::OkStatus();
}

absl::Status Checker::CheckPairs(const ByteSegments& bytes) {
  ByteReader reader(bytes);
  uint64_t next = next_index_;
  while (reader.left() > 0) {
    IndexedValue pair;
    reader.Read(&pair, sizeof(pair));
    if (pair.index >= elements_) {
      return Invalid(absl::StrCat("index is ", pair.index, "; the shard has ", elements_, " elements"));
    }
    if (pair.index < next) {
      return Invalid(absl::StrCat("index ", pair.index, " comes after ", next - 1, "; indices must ascend"));
    }
    if (!std::isfinite(pair.value)) {
      return Invalid(absl::StrCat("the value of element ", pair.index, " is not finite"));
    }
    next = uint64_t{pair.index} + 1;
  }
  next_index_ = next;
  return absl::OkStatus();
}

}  // namespace slackline::codec
