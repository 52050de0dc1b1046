// L2 norm of a gradient, which also shows if every element is a finite number.
#pragma once

#include "absl/types/span.h"

namespace slackline::worker {

// Returns the L2 norm, computed in double: it is finite exactly if every element is.
//
// Hot: see SumOfSquares().
double L2Norm(absl::Span<const float> values);

}  // namespace slackline::worker
