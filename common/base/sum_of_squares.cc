#include "common/base/sum_of_squares.h"

#include <cstring>

namespace slackline {
namespace {

// A load that needs no alignment.
double Load(const float* from) {
  float value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

}  // namespace

double SumOfSquares(absl::Span<const float> values) {
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = Load(values.data() + i + lane);
      sums[lane] += value * value;
    }
  }
  for (; i < values.size(); ++i) {
    const double value = Load(values.data() + i);
    sums[0] += value * value;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace slackline
