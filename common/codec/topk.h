// The values of largest magnitude, as pairs of index and value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace slackline::codec {

// A pair of index and value, with the same layout in memory and on the wire.
struct IndexedValue {
  uint32_t index = 0;
  float value = 0;
};
static_assert(sizeof(IndexedValue) == 8);

// Returns the indices, ascending, of the `count` values of largest magnitude. Among equals the lower index wins. Zeros
// are left out, except for one if all values are zero, so fewer than `count` indices may be returned.
// Requires: 0 < count <= values.size() <= 2^32.
std::vector<uint32_t> SelectLargest(absl::Span<const float> values, size_t count);

// Writes at most `pairs` pairs of x = in, or in + residual if there is one, and returns the number of bytes. Values
// that are sent leave the residual.
size_t EncodeTopK(size_t pairs, absl::Span<const float> in, float* residual, std::byte* out);

// Adds the pairs to the residual: residual[index] += value for each pair.
void AddPairs(absl::Span<const std::byte> encoded, absl::Span<float> residual);

}  // namespace slackline::codec
