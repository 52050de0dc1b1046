// The sum of squares of values, as norms need it.
#pragma once

#include "absl/types/span.h"

namespace slackline {

// In double, so that it is finite exactly when every element is. The values may have any alignment.
//
// Hot: one pass over `values`; eight sums, so that additions need not wait for each other.
double SumOfSquares(absl::Span<const float> values);

}  // namespace slackline
