// Figures of an evaluation in messages that have `accuracy`, `loss` and `values`: wire::EvaluationReport and
// state::MeasuredAccuracy. Peers and saved state of an earlier version have no `without_accuracy`, `without_loss` and
// `values`: they always have an accuracy, and a loss unless objects are found.
#pragma once

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/job/metric_names.h"

namespace slackline {

// Figures by the names that a script gave them; accuracy and loss are not among them.
using NamedValues = std::map<std::string, double>;

// Returns the figures of a message. Left out is what no worker sends: names that are none, numbers that are not finite,
// and more than kMetricNamesMax figures.
template <typename List>
NamedValues NamedValuesIn(const List& list) {
  NamedValues values;
  for (const auto& one : list) {
    const bool sound = CheckMetricName(one.name()).ok() && std::isfinite(one.value());
    if (sound && values.size() < kMetricNamesMax) values[one.name()] = one.value();
  }
  return values;
}

template <typename List>
void AddNamedValues(const NamedValues& values, List* list) {
  for (const auto& [name, value] : values) {
    auto& one = *list->Add();
    one.set_name(name);
    one.set_value(value);
  }
}

// True if objects are found: the accuracy is their mean average precision, and there is no loss.
template <typename Evaluation>
bool FoundObjects(const Evaluation& evaluation) {
  if constexpr (requires { evaluation.has_map_50(); }) {
    return evaluation.has_map_50();
  } else {
    return evaluation.map();
  }
}

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

// Returns the loss; nullopt if the evaluation measured none.
template <typename Evaluation>
std::optional<double> TestLossOf(const Evaluation& evaluation) {
  if (evaluation.without_loss() || FoundObjects(evaluation)) return std::nullopt;
  return evaluation.loss();
}

// Sets the loss, or says that the evaluation measured none.
template <typename Evaluation>
void SetTestLoss(const std::optional<double>& loss, Evaluation& evaluation) {
  evaluation.set_loss(loss.value_or(0));
  evaluation.set_without_loss(!loss);
}

// Returns the figure called `name`: accuracy, loss, or one of a script; nullopt if the evaluation measured none.
template <typename Evaluation>
std::optional<double> MeasuredValue(absl::string_view name, const Evaluation& evaluation) {
  if (name == kAccuracyMetric) return TestAccuracyOf(evaluation);
  if (name == kLossMetric) return TestLossOf(evaluation);
  for (const auto& one : evaluation.values()) {
    if (one.name() == name) return one.value();
  }
  return std::nullopt;
}

// Returns "accuracy 86.21 %", "mAP 41.52 %" if `map`, "loss 0.3512" or "perplexity 21.3571".
inline std::string FigureText(absl::string_view name, double value, bool map = false) {
  if (name == kAccuracyMetric) return absl::StrFormat("%s %.2f %%", map ? "mAP" : "accuracy", 100 * value);
  if (name == kLossMetric) return absl::StrFormat("loss %.4f", value);
  return absl::StrFormat("%s %.6g", name, value);
}

// Returns the texts of all figures of an evaluation: first that of the job's metric, then accuracy, loss and others.
template <typename Evaluation>
std::vector<std::string> FigureTexts(absl::string_view metric, const Evaluation& evaluation) {
  std::vector<std::string> names = {std::string(metric)};
  const auto add = [&](absl::string_view name) {
    if (name != metric) names.emplace_back(name);
  };
  add(kAccuracyMetric);
  add(kLossMetric);
  for (const auto& one : evaluation.values()) add(one.name());
  std::vector<std::string> texts;
  for (const std::string& name : names) {
    if (const std::optional<double> value = MeasuredValue(name, evaluation)) {
      texts.push_back(FigureText(name, *value, FoundObjects(evaluation)));
    }
  }
  return texts;
}

}  // namespace slackline
