#include "common/sum_of_squares.h"

namespace slackline {

double SumOfSquares(absl::Span<const float> values) {
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (; i < values.size(); ++i) sums[0] += static_cast<double>(values[i]) * values[i];
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace slackline
