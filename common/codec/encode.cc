#include "common/codec/encode.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/byte_segments.h"
#include "common/base/check.h"
#include "common/codec/block_decoder.h"
#include "common/codec/kernels.h"
#include "common/codec/topk.h"

namespace slackline::codec {
namespace {

// `residual` is null for none, also below.
size_t EncodeFp32(absl::Span<const float> in, float* residual, std::byte* out) {
  const size_t size = in.size() * sizeof(float);
  if (size == 0) return 0;
  if (residual == nullptr) {
    std::memcpy(out, in.data(), size);
  } else {
    Add(in.size(), in.data(), residual);
    std::memcpy(out, residual, size);
    std::fill_n(residual, in.size(), 0.0f);
  }
  return size;
}

size_t EncodeInt8Blocks(absl::Span<const float> in, float* residual, std::byte* out) {
  std::byte* next = out;
  for (size_t begin = 0; begin < in.size(); begin += kInt8BlockElements) {
    const size_t elements = std::min(kInt8BlockElements, in.size() - begin);
    const float scale = EncodeInt8(
        {.elements = elements, .in = in.data() + begin, .residual = residual == nullptr ? nullptr : residual + begin},
        next + sizeof(float));
    std::memcpy(next, &scale, sizeof(scale));
    next += sizeof(scale) + elements;
  }
  return static_cast<size_t>(next - out);
}

size_t EncodeAny(const Codec& codec, absl::Span<const float> in, float* residual, absl::Span<std::byte> out) {
  SLACKLINE_CHECK(out.size() >= EncodedBytesMax(codec, in.size()));
  switch (codec.encoding) {
    case Encoding::kFp32:
      return EncodeFp32(in, residual, out.data());
    case Encoding::kBf16:
      EncodeBf16({.elements = in.size(), .in = in.data(), .residual = residual}, out.data());
      return in.size() * sizeof(uint16_t);
    case Encoding::kFp16:
      EncodeFp16({.elements = in.size(), .in = in.data(), .residual = residual}, out.data());
      return in.size() * sizeof(uint16_t);
    case Encoding::kInt8:
      return EncodeInt8Blocks(in, residual, out.data());
    case Encoding::kTopK:
      return EncodeTopK(TopKPairsMax(codec, in.size()), in, residual, out.data());
  }
  return 0;
}

}  // namespace

size_t Encode(const Codec& codec, absl::Span<const float> in, absl::Span<std::byte> out) {
  return EncodeAny(codec, in, nullptr, out);
}

size_t EncodeWithFeedback(const Codec& codec, absl::Span<const float> in, absl::Span<float> residual,
                          absl::Span<std::byte> out) {
  SLACKLINE_CHECK(residual.size() == in.size());
  return EncodeAny(codec, in, residual.data(), out);
}

void ReturnToResidual(const Codec& codec, absl::Span<const std::byte> encoded, absl::Span<float> residual) {
  SLACKLINE_CHECK(IsEncodedLength(codec, residual.size(), encoded.size()));
  if (codec.encoding == Encoding::kTopK) return AddPairs(encoded, residual);
  const ByteSegments bytes(encoded);
  BlockDecoder decoder(codec, bytes);
  std::array<float, 512> block;
  while (!residual.empty()) {
    const size_t elements = std::min(block.size(), residual.size());
    Add(elements, decoder.Next(absl::MakeSpan(block).first(elements)), residual.data());
    residual.remove_prefix(elements);
  }
}

}  // namespace slackline::codec
