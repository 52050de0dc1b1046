// What evaluations say of a run: which was the best, and whether it is time to stop. Pure.
#pragma once

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "job.pb.h"
#include "scheduler.pb.h"
#include "scheduler/run_summary.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

state::MeasuredAccuracy ToState(const EvaluationSummary& evaluation);
EvaluationSummary FromState(const state::MeasuredAccuracy& state);

// Whether accuracies of evaluations, of which `last` is the last one, are mean average precisions. There are none of
// training images then.
bool MeasuresMap(const job::Job& job, const std::optional<wire::EvaluationReport>& last);

// The value that `metric` looks at.
double ValueOf(job::Metric::Kind metric, const EvaluationSummary& evaluation);
// "test accuracy 86.21 %", "test mAP 41.52 %" or "test loss 0.3512".
std::string Described(job::Metric::Kind metric, const EvaluationSummary& evaluation);

// Whether the last one is better than all before it. What is not a number is better than nothing.
bool LastIsBest(job::Metric::Kind metric, absl::Span<const EvaluationSummary> evaluations);

// Why training ends after these evaluations; nothing where it goes on. As torch and Keras users know it: `patience`
// evaluations in a row were not better than the best one before them by more than `min_delta`. The first `before` are
// of a run that this one goes on from: they say what is best, and do not count.
std::optional<std::string> WhyEarly(const job::EarlyStopping& early, absl::Span<const EvaluationSummary> evaluations,
                                    size_t before = 0);

}  // namespace slackline::scheduler
