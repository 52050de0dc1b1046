// The weighted mean of several pushes, or a mean without extreme values, made block by block as the step walks over the
// shard.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/codec/block_decoder.h"
#include "common/optimizer/aligned_floats.h"
#include "ps/shard/shard_state.h"
#include "ps/shard/slice.h"

namespace slackline::ps {

// Computes the weighted mean of a step's pushes.
//
// Thread-safety: none.
// Ownership:     borrows the contributions and their bytes.
// Copies:        wire -> block in the nearest cache, decoded -> kernel. None if a single push of weight 1 lies in
//                memory as float32, except for blocks that span two of its pieces.
class GradientMean {
 public:
  // Choice of clipping: trained elements are clipped, averaged ones are not.
  enum class Clip { kNo, kYes };

  // Gradients whose norm is above `clip_norm` are scaled down to it; 0 means never.
  GradientMean(absl::Span<const Contribution> contributions, double clip_norm, const AggregationConfig& aggregation);

  // Returns the mean of the next `elements` elements, or what the aggregation makes of them; valid until the next call.
  // Requires: elements <= Slice::kBlockElements.
  absl::Span<const float> Next(size_t elements, Clip clip);
  // Returns the mean of trained elements begin, begin + 1, ...; valid until the next call. Each gradient is clipped,
  // then compensated by `optimizer` for the change of `weights` since the gradient was computed.
  // Requires: weights.size() <= Slice::kBlockElements; the aggregation is the mean.
  absl::Span<const float> NextCompensated(uint64_t begin, absl::Span<const float> weights, const Optimizer& optimizer,
                                          const BlockOfArrays& arrays);

 private:
  // Reads one contribution, piece after piece.
  class Source {
   public:
    Source(const Contribution& part, double clip_norm);

    // Returns the next out.size() values: in place if possible, else in `out`.
    const float* Next(absl::Span<float> out);
    float factor(Clip clip) const { return clip == Clip::kYes ? clipped_weight_ : weight_; }
    float weight() const { return weight_; }
    float clip() const { return clip_; }
    // Returns the weights, from element `begin` on, that the gradient was computed from; null if they are not known.
    const float* Reference(uint64_t begin) const;

   private:
    // Moves to a piece that has elements left.
    void FindPiece();

    absl::Span<const EncodedPiece> pieces_;
    std::optional<codec::BlockDecoder> decoder_;
    uint64_t left_ = 0;  // elements left of the piece that decoder_ is at
    float weight_ = 1;
    float clip_ = 1;
    float clipped_weight_ = 1;
    const SliceView* reference_;
  };
  using Buffer = std::array<float, Slice::kBlockElements>;

  absl::Span<const float> NextTrimmed(size_t elements, Clip clip);
  // Stores factor x values in sum_ if `first`, else adds them to it.
  void Add(bool first, float factor, size_t elements, const float* values);

  std::vector<Source> sources_;
  // Number of values of each element that are left out at each end.
  const size_t left_out_;
  // Values of each push, if some are left out.
  AlignedFloats values_;
  std::vector<float*> rows_;
  // Decoded values of one push.
  alignas(kCacheLineBytes) Buffer buffer_;
  alignas(kCacheLineBytes) Buffer compensated_;
  alignas(kCacheLineBytes) Buffer sum_;
};

}  // namespace slackline::ps
