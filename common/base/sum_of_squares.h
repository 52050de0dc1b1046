// The sum of squares of values, for norms.
#pragma once

#include "absl/types/span.h"

namespace slackline {

// Returns the sum in double, so that it is finite exactly if every element is. The values may have any alignment.
//
// Hot: one pass over `values`; eight sums, so that additions need not wait for each other.
double SumOfSquares(absl::Span<const float> values);

}  // namespace slackline
