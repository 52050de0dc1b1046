// Encoded bytes in segments that are cut anywhere: refused, or decoded to the same finite values whatever the cuts.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/byte_segments.h"
#include "common/base/check.h"
#include "common/codec/block_decoder.h"
#include "common/codec/checker.h"
#include "common/codec/encode.h"
#include "tests/fuzz/bytes_input.h"

namespace slackline::fuzz {
namespace {

constexpr uint32_t kElementsMax = 8192;

absl::Span<const std::byte> AsBytesOf(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

ByteSegments Cut(const std::string& bytes, size_t step) {
  ByteSegments segments;
  for (size_t begin = 0; begin < bytes.size(); begin += step) {
    segments.Append(AsBytesOf(bytes).subspan(begin, step));
  }
  return segments;
}

std::vector<float> Decode(const codec::Codec& codec, const ByteSegments& bytes, size_t elements, size_t block) {
  codec::BlockDecoder decoder(codec, bytes);
  std::vector<float> values(elements), room(block);
  for (size_t begin = 0; begin < elements; begin += block) {
    const size_t count = std::min(block, elements - begin);
    const float* const decoded = decoder.Next(absl::MakeSpan(room).subspan(0, count));
    std::memcpy(values.data() + begin, decoded, count * sizeof(float));
  }
  return values;
}

// The fuzzer says a few bytes; the rest of what so many elements need repeats them.
std::string Fill(absl::string_view some, size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size && !some.empty(); ++i) bytes[i] = some[i % some.size()];
  return bytes;
}

void Try(BytesInput& input) {
  codec::Codec codec = {.encoding = static_cast<codec::Encoding>(1 + input.TakeUpTo(4))};
  if (codec.encoding == codec::Encoding::kTopK) codec.fraction = (1 + input.TakeUpTo(99)) / 100.0;
  const size_t elements = input.TakeUpTo(kElementsMax);
  const size_t step = 1 + input.TakeUpTo(1500), block = 1 + input.TakeUpTo(1500);
  const bool repeat = input.TakeUpTo(1) == 1;
  const size_t length = codec::EncodedBytesMax(codec, elements);
  const absl::string_view rest = input.TakeRest();
  const std::string bytes = repeat ? Fill(rest, length) : std::string(rest);
  const ByteSegments cut = Cut(bytes, step), whole = Cut(bytes, bytes.size() + 1);

  codec::Checker checker(codec, elements), other(codec, elements);
  const absl::Status status = checker.Add(cut);
  SLACKLINE_CHECK(status == other.Add(whole));
  if (!status.ok() || !checker.Finish().ok()) return;
  SLACKLINE_CHECK(codec::IsEncodedLength(codec, elements, bytes.size()));
  const std::vector<float> values = Decode(codec, cut, elements, block);
  SLACKLINE_CHECK(std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }));
  const std::vector<float> again = Decode(codec, whole, elements, elements + 1);
  SLACKLINE_CHECK(values.empty() || std::memcmp(values.data(), again.data(), values.size() * sizeof(float)) == 0);

  // What a worker does with the bytes of a push that was discarded: they are its own, which these might be.
  std::vector<float> residual(elements);
  codec::ReturnToResidual(codec, AsBytesOf(bytes), absl::MakeSpan(residual));
  SLACKLINE_CHECK(residual == values);
}

}  // namespace
}  // namespace slackline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slackline::fuzz::BytesInput text(data, size);
  const auto parsed = slackline::codec::ParseCodec(text.TakeRest());
  if (parsed.ok())
    SLACKLINE_CHECK(slackline::codec::ParseCodec(slackline::codec::ToString(*parsed)).value() == *parsed);
  slackline::fuzz::BytesInput input(data, size);
  slackline::fuzz::Try(input);
  return 0;
}
