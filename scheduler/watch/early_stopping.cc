#include "scheduler/watch/early_stopping.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/metrics/test_accuracy.h"
#include "common/metrics/test_metric.h"

namespace slackline::scheduler {
namespace {

// By how much `later` is better than `earlier`.
double Gain(job::Metric::Kind metric, double earlier, double later) {
  return metric == job::Metric::TEST_LOSS ? earlier - later : later - earlier;
}

bool Better(job::Metric::Kind metric, const EvaluationSummary* best, const EvaluationSummary& other, double by) {
  const std::optional<double> value = ValueOf(metric, other);
  if (!value || !std::isfinite(*value)) return false;
  return best == nullptr || Gain(metric, *ValueOf(metric, *best), *value) > by;
}

}  // namespace

state::MeasuredAccuracy ToState(const EvaluationSummary& evaluation) {
  state::MeasuredAccuracy out;
  out.set_epoch(evaluation.epoch);
  out.set_time_s(evaluation.time_s);
  out.set_samples(evaluation.samples);
  out.set_samples_applied(evaluation.samples_applied);
  SetTestAccuracy(evaluation.accuracy, out);
  out.set_loss(evaluation.loss);
  out.set_map(evaluation.map);
  return out;
}

EvaluationSummary FromState(const state::MeasuredAccuracy& state) {
  return {.epoch = state.epoch(),
          .time_s = state.time_s(),
          .samples = state.samples(),
          .samples_applied = state.has_samples_applied() ? state.samples_applied() : state.samples(),
          .accuracy = TestAccuracyOf(state),
          .loss = state.loss(),
          .map = state.map()};
}

bool MeasuresMap(const job::Job& job, const std::optional<wire::EvaluationReport>& last) {
  return last ? last->has_map_50() : FindsObjects(job);
}

std::optional<double> ValueOf(job::Metric::Kind metric, const EvaluationSummary& evaluation) {
  return metric == job::Metric::TEST_LOSS ? evaluation.loss : evaluation.accuracy;
}

std::string Described(job::Metric::Kind metric, const EvaluationSummary& evaluation) {
  if (metric == job::Metric::TEST_LOSS || !evaluation.accuracy) {
    return absl::StrFormat("test loss %.4f", evaluation.loss);
  }
  return absl::StrFormat("test %s %.2f %%", evaluation.map ? "mAP" : "accuracy", 100 * *evaluation.accuracy);
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
    if (evaluation.epoch < early.start_epoch() || !ValueOf(early.metric(), evaluation)) continue;
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

std::optional<std::string> WarnOfNoAccuracy(const job::Job& job) {
  std::vector<absl::string_view> settings, effects;
  const job::EarlyStopping& early = job.training().early_stopping();
  if (early.patience() > 0 && early.metric() != job::Metric::TEST_LOSS) {
    settings.push_back("training.early_stopping.metric: test_accuracy");
    effects.push_back("training does not end early");
  }
  if (job.checkpoint().keep_best() > 0 && job.checkpoint().metric() != job::Metric::TEST_LOSS) {
    settings.push_back("checkpoint.metric: test_accuracy");
    effects.push_back("no checkpoint is kept as the best");
  }
  if (settings.empty()) return std::nullopt;
  return absl::StrCat("warning: evaluations report no accuracy, and the job sets ", absl::StrJoin(settings, " and "),
                      ", so ", absl::StrJoin(effects, " and "),
                      "; set test_loss there, or let the evaluation return an accuracy");
}

}  // namespace slackline::scheduler
