#include "scheduler/watch/early_stopping.h"

#include <cmath>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/metrics/measured.h"
#include "common/metrics/test_metric.h"

namespace slackline::scheduler {
namespace {

bool Better(const ComparedMetric& metric, const EvaluationSummary* best, const EvaluationSummary& other, double by) {
  const std::optional<double> value = ValueOf(metric.name, other);
  if (!value || !std::isfinite(*value)) return false;
  return best == nullptr || metric.Gain(*ValueOf(metric.name, *best), *value) > by;
}

}  // namespace

state::MeasuredAccuracy ToState(const EvaluationSummary& evaluation) {
  state::MeasuredAccuracy out;
  out.set_epoch(evaluation.epoch);
  out.set_time_s(evaluation.time_s);
  out.set_samples(evaluation.samples);
  out.set_samples_applied(evaluation.samples_applied);
  SetTestAccuracy(evaluation.accuracy, out);
  SetTestLoss(evaluation.loss, out);
  AddNamedValues(evaluation.values, out.mutable_values());
  out.set_tested(evaluation.tested);
  out.set_seconds(evaluation.seconds);
  out.set_apart(evaluation.apart);
  out.set_map(evaluation.map);
  return out;
}

EvaluationSummary FromState(const state::MeasuredAccuracy& state) {
  return {.epoch = state.epoch(),
          .time_s = state.time_s(),
          .samples = state.samples(),
          .samples_applied = state.has_samples_applied() ? state.samples_applied() : state.samples(),
          .accuracy = TestAccuracyOf(state),
          .loss = TestLossOf(state),
          .values = NamedValuesIn(state.values()),
          .tested = state.tested(),
          .seconds = state.seconds(),
          .apart = state.apart(),
          .map = state.map()};
}

bool MeasuresMap(const job::Job& job, const std::optional<wire::EvaluationReport>& last) {
  return last ? last->has_map_50() : FindsObjects(job);
}

std::optional<double> ValueOf(absl::string_view name, const EvaluationSummary& evaluation) {
  if (name == kAccuracyMetric) return evaluation.accuracy;
  if (name == kLossMetric) return evaluation.loss;
  const auto found = evaluation.values.find(std::string(name));
  return found == evaluation.values.end() ? std::nullopt : std::optional<double>(found->second);
}

std::string Described(absl::string_view name, const EvaluationSummary& evaluation) {
  for (const absl::string_view figure : {name, kLossMetric}) {
    if (const std::optional<double> value = ValueOf(figure, evaluation)) {
      return absl::StrCat("test ", FigureText(figure, *value, evaluation.map));
    }
  }
  return absl::StrCat("no test ", name);
}

const EvaluationSummary* BestOf(const ComparedMetric& metric, absl::Span<const EvaluationSummary> evaluations) {
  const EvaluationSummary* best = nullptr;
  for (const EvaluationSummary& evaluation : evaluations) {
    if (evaluation.apart && evaluations.size() > 1) continue;
    if (Better(metric, best, evaluation, /*by=*/0)) best = &evaluation;
  }
  return best;
}

bool LastIsBest(const ComparedMetric& metric, absl::Span<const EvaluationSummary> evaluations) {
  return !evaluations.empty() && BestOf(metric, evaluations) == &evaluations.back();
}

std::optional<std::string> WhyEarly(const job::EarlyStopping& early, const ComparedMetric& metric,
                                    absl::Span<const EvaluationSummary> evaluations, size_t before) {
  if (early.patience() == 0) return std::nullopt;
  const EvaluationSummary* best = nullptr;
  uint32_t without = 0;
  for (size_t i = 0; i < evaluations.size(); ++i) {
    const EvaluationSummary& evaluation = evaluations[i];
    if (evaluation.epoch < early.start_epoch() || !ValueOf(metric.name, evaluation)) continue;
    if (Better(metric, best, evaluation, best == nullptr ? 0 : early.min_delta())) {
      best = &evaluation;
      without = 0;
    } else if (i >= before) {
      ++without;
    }
  }
  if (without < early.patience()) return std::nullopt;
  const std::string found =
      best == nullptr ? "none has a number"
                      : absl::StrCat("the best is ", Described(metric.name, *best), " after epoch ", best->epoch);
  return absl::StrCat(without, without == 1 ? " evaluation" : " evaluations in a row", " did not better it: ", found);
}

std::optional<std::string> WarnOfUnmeasured(const job::Job& job, const EvaluationSummary& evaluation) {
  std::vector<std::string> missing, effects;
  const auto check = [&](absl::string_view section, job::Metric::Kind kind, absl::string_view effect) {
    const std::string name = MetricOf(job, kind).name;
    if (ValueOf(name, evaluation)) return;
    const std::string setting = kind == job::Metric::TEST_LOSS ? absl::StrCat(section, ".metric") : "training.metric";
    std::string one = absl::StrCat("no ", name, " (", setting, ")");
    if (!absl::c_linear_search(missing, one)) missing.push_back(std::move(one));
    effects.emplace_back(effect);
  };
  const job::EarlyStopping& early = job.training().early_stopping();
  if (early.patience() > 0) check("training.early_stopping", early.metric(), "training does not end early");
  if (job.checkpoint().keep_best() > 0) {
    check("checkpoint", job.checkpoint().metric(), "no checkpoint is kept as the best");
  }
  if (MetricOf(job).name != kAccuracyMetric) check("", job::Metric::TEST_ACCURACY, "the job's metric is unknown");
  if (missing.empty()) return std::nullopt;
  std::vector<std::string> measured;
  for (const absl::string_view name : {kAccuracyMetric, kLossMetric}) {
    if (ValueOf(name, evaluation)) measured.emplace_back(name);
  }
  for (const auto& [name, value] : evaluation.values) measured.push_back(name);
  return absl::StrCat("warning: evaluations report ", measured.empty() ? "nothing" : absl::StrJoin(measured, ", "),
                      " and ", absl::StrJoin(missing, ", "), ", so ", absl::StrJoin(effects, " and "),
                      "; let the evaluation return what is missing, or set training.metric to what it returns");
}

}  // namespace slackline::scheduler
