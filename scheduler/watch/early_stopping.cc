#include "scheduler/watch/early_stopping.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/metrics/test_metric.h"

namespace slackline::scheduler {
namespace {

// By how much `later` is better than `earlier`.
double Gain(job::Metric::Kind metric, const EvaluationSummary& earlier, const EvaluationSummary& later) {
  const double rise = ValueOf(metric, later) - ValueOf(metric, earlier);
  return metric == job::Metric::TEST_LOSS ? -rise : rise;
}

bool Better(job::Metric::Kind metric, const EvaluationSummary* best, const EvaluationSummary& other, double by) {
  if (!std::isfinite(ValueOf(metric, other))) return false;
  return best == nullptr || Gain(metric, *best, other) > by;
}

}  // namespace

state::MeasuredAccuracy ToState(const EvaluationSummary& evaluation) {
  state::MeasuredAccuracy out;
  out.set_epoch(evaluation.epoch);
  out.set_time_s(evaluation.time_s);
  out.set_samples(evaluation.samples);
  out.set_samples_applied(evaluation.samples_applied);
  out.set_accuracy(evaluation.accuracy);
  out.set_loss(evaluation.loss);
  out.set_map(evaluation.map);
  return out;
}

EvaluationSummary FromState(const state::MeasuredAccuracy& state) {
  return {.epoch = state.epoch(),
          .time_s = state.time_s(),
          .samples = state.samples(),
          .samples_applied = state.has_samples_applied() ? state.samples_applied() : state.samples(),
          .accuracy = state.accuracy(),
          .loss = state.loss(),
          .map = state.map()};
}

bool MeasuresMap(const job::Job& job, const std::optional<wire::EvaluationReport>& last) {
  return last ? last->has_map_50() : FindsObjects(job);
}

double ValueOf(job::Metric::Kind metric, const EvaluationSummary& evaluation) {
  return metric == job::Metric::TEST_LOSS ? evaluation.loss : evaluation.accuracy;
}

std::string Described(job::Metric::Kind metric, const EvaluationSummary& evaluation) {
  if (metric == job::Metric::TEST_LOSS) return absl::StrFormat("test loss %.4f", evaluation.loss);
  return absl::StrFormat("test %s %.2f %%", evaluation.map ? "mAP" : "accuracy", 100 * evaluation.accuracy);
}

bool LastIsBest(job::Metric::Kind metric, absl::Span<const EvaluationSummary> evaluations) {
  const EvaluationSummary* best = nullptr;
  bool last = false;
  for (const EvaluationSummary& evaluation : evaluations) {
    last = Better(metric, best, evaluation, /*by=*/0);
    if (last) best = &evaluation;
  }
  return last;
}

std::optional<std::string> WhyEarly(const job::EarlyStopping& early, absl::Span<const EvaluationSummary> evaluations,
                                    size_t before) {
  if (early.patience() == 0) return std::nullopt;
  const EvaluationSummary* best = nullptr;
  uint32_t without = 0;
  for (size_t i = 0; i < evaluations.size(); ++i) {
    const EvaluationSummary& evaluation = evaluations[i];
    if (evaluation.epoch < early.start_epoch()) continue;
    if (Better(early.metric(), best, evaluation, best == nullptr ? 0 : early.min_delta())) {
      best = &evaluation;
      without = 0;
    } else if (i >= before) {
      ++without;
    }
  }
  if (without < early.patience()) return std::nullopt;
  const std::string found =
      best == nullptr ? "none has a number"
                      : absl::StrCat("the best is ", Described(early.metric(), *best), " after epoch ", best->epoch);
  return absl::StrCat(without, without == 1 ? " evaluation" : " evaluations in a row", " did not better it: ", found);
}

}  // namespace slackline::scheduler
