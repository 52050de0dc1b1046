#include "ps/shard/push_norm.h"

#include <algorithm>
#include <cmath>

#include "common/base/sum_of_squares.h"
#include "common/codec/block_decoder.h"

namespace slackline::ps {

double PushNorm(absl::Span<const EncodedPiece> pieces, uint64_t elements) {
  float block[Slice::kBlockElements];
  double sum = 0;
  for (const EncodedPiece& piece : pieces) {
    codec::BlockDecoder decoder(piece.codec, piece.bytes);
    for (uint64_t left = std::min(piece.elements, elements); left > 0;) {
      const absl::Span<float> out = absl::MakeSpan(block).first(std::min<uint64_t>(left, Slice::kBlockElements));
      sum += SumOfSquares({decoder.Next(out), out.size()});
      left -= out.size();
      elements -= out.size();
    }
  }
  return std::sqrt(sum);
}

}  // namespace slackline::ps
