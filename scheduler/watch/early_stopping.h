// Judges a run by its evaluations: which was the best, and whether it is time to stop. Pure.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/job/metric_names.h"
#include "job.pb.h"
#include "scheduler.pb.h"
#include "scheduler/watch/evaluation_summary.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

state::MeasuredAccuracy ToState(const EvaluationSummary& evaluation);
EvaluationSummary FromState(const state::MeasuredAccuracy& state);

// True if the accuracies of evaluations are mean average precisions. `last` is the last evaluation. There are no
// accuracies of training images then.
bool MeasuresMap(const job::Job& job, const std::optional<wire::EvaluationReport>& last);

// Returns the figure of this name; nullopt if the evaluation measured none.
std::optional<double> ValueOf(absl::string_view name, const EvaluationSummary& evaluation);
// Returns "test accuracy 86.21 %", "test mAP 41.52 %", "test loss 0.3512" or "test perplexity 21.3571": the figure of
// this name or, if the evaluation measured none, its loss.
std::string Described(absl::string_view name, const EvaluationSummary& evaluation);

// Returns the best evaluation, the earliest of equally good ones; null if none has a finite value. One on other images
// (`apart`) counts only if it is alone.
const EvaluationSummary* BestOf(const ComparedMetric& metric, absl::Span<const EvaluationSummary> evaluations);
// True if the last evaluation is better than all before it. A value that is not a finite number is never better.
bool LastIsBest(const ComparedMetric& metric, absl::Span<const EvaluationSummary> evaluations);

// Returns why training ends after these evaluations; nullopt if it continues. The rule is known from torch and Keras:
// `patience` evaluations in a row were not better than the best one before them by more than `min_delta`. The first
// `before` evaluations are of a run that this one continues: they decide what is best, but do not count as failures.
// Evaluations that did not measure the metric are left out. `metric` is that of `early`.
std::optional<std::string> WhyEarly(const job::EarlyStopping& early, const ComparedMetric& metric,
                                    absl::Span<const EvaluationSummary> evaluations, size_t before = 0);

// Returns a warning, for people, that settings of the job compare figures that the evaluation did not measure; nullopt
// if no setting does.
std::optional<std::string> WarnOfUnmeasured(const job::Job& job, const EvaluationSummary& evaluation);

}  // namespace slackline::scheduler
