// Encodes values with error feedback: the part of a value that the code cannot express stays in a residual and goes out
// with the next gradient (Seide et al. 2014; Karimireddy et al. 2019).
//
// Copies: values -> wire bytes, in one pass over memory (top-k: one pass to choose, then the chosen values).
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "common/codec/codec.h"

namespace slackline::codec {

// Encodes `in`, from a shard's beginning, and returns the number of bytes written. Finite values beyond the largest
// code become that code. Infinities and NaNs are encoded so that Checker refuses them.
// Requires: out.size() >= EncodedBytesMax(codec, in.size()).
size_t Encode(const Codec& codec, absl::Span<const float> in, absl::Span<std::byte> out);

// Encodes x = in + residual and leaves x - decoded(x) in `residual`. Decoded values and the new residual therefore sum
// to x (except for the rounding of that one addition).
// Requires: out.size() >= EncodedBytesMax(codec, in.size()); residual.size() == in.size().
size_t EncodeWithFeedback(const Codec& codec, absl::Span<const float> in, absl::Span<float> residual,
                          absl::Span<std::byte> out);

// Adds the decoded values of a discarded push to the residual: residual += decoded values.
// Requires: `encoded` came from Encode() or EncodeWithFeedback() with residual.size() elements.
void ReturnToResidual(const Codec& codec, absl::Span<const std::byte> encoded, absl::Span<float> residual);

}  // namespace slackline::codec
