#include "common/codec/block_decoder.h"

#include <algorithm>
#include <array>

#include "common/base/check.h"
#include "common/codec/kernels.h"

namespace slackline::codec {
namespace {

// Bytes that lie across segments are put together here.
constexpr size_t kPieceBytes = 1024;
using Piece = std::array<std::byte, kPieceBytes>;

// Where the next `size` bytes lie in one piece: in place, or copied to `across`.
const std::byte* Take(ByteReader& reader, size_t size, Piece& across) {
  if (const std::byte* there = reader.contiguous(size); there != nullptr) {
    reader.Skip(size);
    return there;
  }
  reader.Read(across.data(), size);
  return across.data();
}

}  // namespace

BlockDecoder::BlockDecoder(const Codec& codec, const ByteSegments& bytes) : encoding_(codec.encoding), reader_(bytes) {
  if (encoding_ == Encoding::kTopK) ReadPair();
}

const float* BlockDecoder::Next(absl::Span<float> out) {
  switch (encoding_) {
    case Encoding::kFp32:
      return NextFp32(out);
    case Encoding::kBf16:
      NextHalves(DecodeBf16, out);
      break;
    case Encoding::kFp16:
      NextHalves(DecodeFp16, out);
      break;
    case Encoding::kInt8:
      NextInt8(out);
      break;
    case Encoding::kTopK:
      NextPairs(out);
      break;
  }
  return out.data();
}

const float* BlockDecoder::NextFp32(absl::Span<float> out) {
  const size_t size = out.size() * sizeof(float);
  const std::byte* next = reader_.contiguous(size);
  if (next != nullptr) {
    reader_.Skip(size);
    return reinterpret_cast<const float*>(next);  // at any alignment: see the header
  }
  reader_.Read(out.data(), size);
  return out.data();
}

void BlockDecoder::NextHalves(Decode decode, absl::Span<float> out) {
  Piece across;
  while (!out.empty()) {
    const size_t elements = std::min(out.size(), kPieceBytes / sizeof(uint16_t));
    decode(elements, Take(reader_, elements * sizeof(uint16_t), across), out.data());
    out.remove_prefix(elements);
  }
}

void BlockDecoder::NextInt8(absl::Span<float> out) {
  Piece across;
  while (!out.empty()) {
    if (block_left_ == 0) {
      reader_.Read(&scale_, sizeof(scale_));
      block_left_ = kInt8BlockElements;
    }
    const size_t elements = std::min({out.size(), block_left_, kPieceBytes});
    DecodeInt8(elements, scale_, Take(reader_, elements, across), out.data());
    block_left_ -= elements;
    out.remove_prefix(elements);
  }
}

void BlockDecoder::NextPairs(absl::Span<float> out) {
  std::fill(out.begin(), out.end(), 0.0f);
  for (; has_pair_ && pair_.index < position_ + out.size(); ReadPair()) {
    SLACKLINE_CHECK(pair_.index >= position_);
    out[pair_.index - position_] = pair_.value;
  }
  position_ += out.size();
}

void BlockDecoder::ReadPair() {
  has_pair_ = reader_.left() >= sizeof(pair_);
  if (has_pair_) reader_.Read(&pair_, sizeof(pair_));
}

}  // namespace slackline::codec
