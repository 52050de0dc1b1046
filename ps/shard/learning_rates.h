// Learning rates that pushes name in place of the job's: their check, and their mean in a step of several pushes.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/optimizer/optimizer.h"

namespace slackline::ps {

// Rates of one push, and its share in the step.
struct PushRates {
  // Weight of the push; the weights of a step sum to 1.
  double weight = 1;
  // Rate of elements in no group, then of each group. Empty: the push names none, and counts with the job's rates.
  absl::Span<const double> rates;
};

// Checks the rates of a push or of a step. No rates are allowed.
//   kInvalidArgument  another number than 1 + groups; a rate that is negative or no finite float32
absl::Status CheckLearningRates(absl::Span<const double> rates, size_t groups);

// Returns the mean of the pushes' rates, weighted like their gradients, or no rates if no push names any. If all pushes
// name a rate, the mean is that rate, to the bit. `job`: rates of a push that names none. `aggregation` leaves out the
// extreme rates as it does values of gradients.
// Requires: rates that CheckLearningRates() accepts.
std::vector<double> MeanRates(absl::Span<const PushRates> pushes, absl::Span<const double> job,
                              const AggregationConfig& aggregation = {});

}  // namespace slackline::ps
