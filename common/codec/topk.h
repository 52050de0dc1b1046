// The few largest values of many, as pairs of index and value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace slackline::codec {

// One pair as it lies in memory and on the wire.
struct IndexedValue {
  uint32_t index = 0;
  float value = 0;
};
static_assert(sizeof(IndexedValue) == 8);

// Places of the `count` values that are largest by magnitude, ascending; of equals those with the lower index.
// Zeros are left out, but for one when there is nothing else: fewer than `count` may come.
// Requires: 0 < count <= values.size() <= 2^32.
std::vector<uint32_t> SelectLargest(absl::Span<const float> values, size_t count);

// Writes at most `pairs` pairs of x = in, or in + residual where there is one, and returns the bytes. What is sent
// leaves the residual.
size_t EncodeTopK(size_t pairs, absl::Span<const float> in, float* residual, std::byte* out);

// residual[index] += value for each pair.
void AddPairs(absl::Span<const std::byte> encoded, absl::Span<float> residual);

}  // namespace slackline::codec
