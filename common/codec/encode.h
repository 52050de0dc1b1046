// From values to wire bytes, with error feedback: what a code cannot say stays in a residual and goes out with the
// next gradient (Seide et al. 2014; Karimireddy et al. 2019).
//
// Copies: values -> wire bytes; memory is passed over once (top-k: once to choose, then what was chosen).
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "common/codec/codec.h"

namespace slackline::codec {

// Encodes `in`, from a shard's beginning, and returns how many bytes were written. Finite values beyond the largest
// code become that code. Infinities and NaNs come out such that Checker refuses them.
// Requires: out.size() >= EncodedBytesMax(codec, in.size()).
size_t Encode(const Codec& codec, absl::Span<const float> in, absl::Span<std::byte> out);

// Encodes x = in + residual and leaves x - decoded(x) in `residual`, so that decoded values and residual sum to what
// went in (but for the rounding of that one addition).
// Requires: as above; residual.size() == in.size().
size_t EncodeWithFeedback(const Codec& codec, absl::Span<const float> in, absl::Span<float> residual,
                          absl::Span<std::byte> out);

// For a push that was discarded: residual += decoded values.
// Requires: `encoded` came from Encode() or EncodeWithFeedback() with residual.size() elements.
void ReturnToResidual(const Codec& codec, absl::Span<const std::byte> encoded, absl::Span<float> residual);

}  // namespace slackline::codec
