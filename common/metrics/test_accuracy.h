// The accuracy of an evaluation in messages that have `accuracy` and `without_accuracy`: wire::EvaluationReport and
// state::MeasuredAccuracy. Peers and saved state of an earlier version have no `without_accuracy`, and always an
// accuracy.
#pragma once

#include <optional>

namespace slackline {

// Returns the accuracy; nullopt if the evaluation measured none.
template <typename Evaluation>
std::optional<double> TestAccuracyOf(const Evaluation& evaluation) {
  if (evaluation.without_accuracy()) return std::nullopt;
  return evaluation.accuracy();
}

// Sets the accuracy, or says that the evaluation measured none.
template <typename Evaluation>
void SetTestAccuracy(const std::optional<double>& accuracy, Evaluation& evaluation) {
  evaluation.set_accuracy(accuracy.value_or(0));
  evaluation.set_without_accuracy(!accuracy);
}

}  // namespace slackline
