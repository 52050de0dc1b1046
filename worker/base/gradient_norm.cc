#include "worker/base/gradient_norm.h"

#include <cmath>

#include "common/base/sum_of_squares.h"

namespace slackline::worker {

double L2Norm(absl::Span<const float> values) { return std::sqrt(SumOfSquares(values)); }

}  // namespace slackline::worker
