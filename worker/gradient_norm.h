// The L2 norm of a gradient, and whether it is a number at all.
#pragma once

#include "absl/types/span.h"

namespace slackline::worker {

// In double, so that it is finite exactly when every element is.
//
// Hot: as SumOfSquares().
double L2Norm(absl::Span<const float> values);

}  // namespace slackline::worker
