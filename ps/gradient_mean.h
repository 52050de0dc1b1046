// The weighted mean of several pushes, made block by block as the step walks over the shard.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/codec/block_decoder.h"
#include "common/optimizer/aligned_floats.h"
#include "ps/shard_state.h"
#include "ps/slice.h"

namespace slackline::ps {

// Copies: wire -> block in the nearest cache, decoded -> kernel; none where a single push of weight 1 lies as float32
// in memory, but for blocks across two pieces of it.
//
// Thread-safety: none.
// Ownership:     borrows the contributions and their bytes.
class GradientMean {
 public:
  // Trained elements are clipped, averaged ones are not.
  enum class Clip { kNo, kYes };

  // Gradients whose norm is above `clip_norm` are scaled down to it; 0 means never.
  GradientMean(absl::Span<const Contribution> contributions, double clip_norm);

  // The mean of the next `elements` elements; valid until the next call.
  // Requires: elements <= Slice::kBlockElements.
  absl::Span<const float> Next(size_t elements, Clip clip);
  // The same for trained elements begin, begin + 1, ...: each gradient is clipped, then compensated by `optimizer` for
  // what has become of `weights` since.
  absl::Span<const float> NextCompensated(uint64_t begin, absl::Span<const float> weights, const Optimizer& optimizer,
                                          const Optimizer::BlockOfArrays& arrays);

 private:
  // Reads one contribution, piece after piece.
  class Source {
   public:
    Source(const Contribution& part, double clip_norm);

    // The next out.size() values: where they lie if that is possible, else in `out`.
    const float* Next(absl::Span<float> out);
    float factor(Clip clip) const { return clip == Clip::kYes ? clipped_weight_ : weight_; }
    float weight() const { return weight_; }
    float clip() const { return clip_; }
    // What element `begin` and those behind it were computed from; null where that is not known.
    const float* Reference(uint64_t begin) const;

   private:
    // Stands at a piece that has elements left.
    void FindPiece();

    absl::Span<const EncodedPiece> pieces_;
    std::optional<codec::BlockDecoder> decoder_;
    uint64_t left_ = 0;  // elements of the piece that decoder_ is at
    float weight_ = 1;
    float clip_ = 1;
    float clipped_weight_ = 1;
    const SliceView* reference_;
  };
  using Buffer = std::array<float, Slice::kBlockElements>;

  // factor x values goes into sum_.
  void Add(bool first, float factor, size_t elements, const float* values);

  std::vector<Source> sources_;
  // Where the values of one push are decoded.
  alignas(kCacheLineBytes) Buffer buffer_;
  alignas(kCacheLineBytes) Buffer compensated_;
  alignas(kCacheLineBytes) Buffer sum_;
};

}  // namespace slackline::ps
