// Names of the figures that scripts report, such as perplexity, and their limits.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace slackline {

inline constexpr absl::string_view kAccuracyMetric = "accuracy";
inline constexpr absl::string_view kLossMetric = "loss";

// Largest number of names in an evaluation or a report, and of characters in a name.
inline constexpr size_t kMetricNamesMax = 32;
inline constexpr size_t kMetricNameMax = 64;

// Figure by which evaluations are compared: accuracy, loss, or one of a script.
struct ComparedMetric {
  std::string name;
  bool lower_is_better = false;

  // Returns by how much `later` is better than `earlier`.
  double Gain(double earlier, double later) const { return lower_is_better ? earlier - later : later - earlier; }
};

// Returns OK for [a-z][a-z0-9_]* of at most kMetricNameMax characters. The message is "found X; allowed is Y".
absl::Status CheckMetricName(absl::string_view name);

}  // namespace slackline
