#include "scheduler/watch/evaluations.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/job/job_kinds.h"
#include "common/metrics/measured.h"
#include "common/metrics/test_metric.h"
#include "common/text/counted.h"
#include "scheduler/watch/early_stopping.h"

namespace slackline::scheduler {
namespace {

// An evaluation that is larger is kept without its classes: a little more than scheduler.proto allows them to take.
constexpr size_t kEvaluationBytesMax = (1 << 20) + (64 << 10);

// Returns "test accuracy 86.21 %, loss 0.3512": the figures that the evaluation has, the job's metric first.
std::string FiguresOf(const job::Job& job, const wire::EvaluationReport& report) {
  if (report.has_map_50()) {
    return absl::StrFormat("mAP %.2f %%, %.2f %% at an overlap of 0.5,", 100 * report.accuracy(),
                           100 * report.map_50());
  }
  const std::vector<std::string> texts = FigureTexts(MetricOf(job).name, report);
  return texts.empty() ? "nothing was measured" : absl::StrCat("test ", absl::StrJoin(texts, ", "));
}

// Returns "epoch 2: test accuracy 86.21 %, loss 0.3512 on 10000 images (worker-1)".
std::string Told(const job::Job& job, const wire::EvaluationReport& report, const EvaluationSummary& begun,
                 const std::string& by) {
  const std::string when = report.at_samples() > 0 && !report.final()
                               ? absl::StrCat("after ", Counted(begun.samples_applied, "sample"))
                               : absl::StrCat("epoch ", report.epoch());
  return absl::StrFormat("%s: %s on %d %s (%s)", when, FiguresOf(job, report), report.samples(), SamplesNoun(job), by);
}

}  // namespace

Evaluations::Judgement Evaluations::Note(const wire::EvaluationReport& report, const EvaluationSummary& begun,
                                         const std::string& by) {
  last_ = report;
  const NamedValues values = NamedValuesIn(report.values());
  last_->clear_values();
  AddNamedValues(values, last_->mutable_values());
  // Every reply to a request for the status contains the report.
  if (last_->ByteSizeLong() > kEvaluationBytesMax) last_->clear_classes();
  reported_ = false;
  EvaluationSummary& summary = all_.emplace_back(begun);
  summary.epoch = report.epoch();
  summary.accuracy = TestAccuracyOf(report);
  summary.loss = TestLossOf(report);
  summary.values = values;
  summary.tested = report.samples();
  summary.seconds = std::isfinite(report.seconds()) ? std::max(0.0, report.seconds()) : 0;
  summary.apart = report.final() && job_.data().test_at_end();
  summary.map = report.has_map_50();
  // The first evaluation of the run speaks for the later ones.
  const bool first = all_.size() == before_ + 1;
  const job::EarlyStopping& early = job_.training().early_stopping();
  return {.told = Told(job_, *last_, begun, by),
          .warning = first ? WarnOfUnmeasured(job_, summary) : std::nullopt,
          .best = job_.checkpoint().keep_best() > 0 && LastIsBest(MetricOf(job_, job_.checkpoint().metric()), all_),
          .ends = WhyEarly(early, MetricOf(job_, early.metric()), all_, before_)};
}

std::string Evaluations::Metric() const { return std::string(MeasuresMap(job_, last_) ? kMapMetric : kAccuracyMetric); }

wire::JobMetric Evaluations::JobMetric() const {
  const ComparedMetric metric = MetricOf(job_);
  wire::JobMetric out;
  out.set_name(metric.name);
  out.set_lower_is_better(metric.lower_is_better);
  if (all_.empty()) return out;
  if (const auto last = ValueOf(metric.name, all_.back())) out.set_last(*last);
  if (const EvaluationSummary* const best = BestOf(metric, all_)) out.set_best(*ValueOf(metric.name, *best));
  return out;
}

void Evaluations::FillCurve(size_t points_max, wire::JobCurve& curve) const {
  const std::string metric = MetricOf(job_).name;
  const size_t stride = (all_.size() + points_max - 1) / points_max;
  for (size_t i = 0; i < all_.size(); ++i) {
    if ((all_.size() - 1 - i) % stride != 0) continue;
    const std::optional<double> value = ValueOf(metric, all_[i]);
    if (!value) continue;
    curve.add_metric_time_s(all_[i].time_s);
    curve.add_metric(*value);
  }
}

void Evaluations::Report(scheduler::Report& report) {
  if (!last_ || reported_) return;
  report.finds_objects = last_->has_map_50();
  report.test_loss = TestLossOf(*last_);
  report.test_accuracy = TestAccuracyOf(*last_);
  report.test_values = NamedValuesIn(last_->values());
  report.confusion.assign(last_->confusion().begin(), last_->confusion().end());
  // Only reports contain the confusion matrix.
  last_->clear_confusion();
  reported_ = true;
}

void Evaluations::Save(state::Scheduler& state) const {
  for (const EvaluationSummary& evaluation : all_) *state.add_evaluations() = ToState(evaluation);
  state.set_evaluations_before(static_cast<uint32_t>(before_));
  if (last_) *state.mutable_evaluation() = *last_;
}

void Evaluations::Restore(const state::Scheduler& state, bool anew) {
  for (const state::MeasuredAccuracy& from : state.evaluations()) all_.push_back(FromState(from));
  if (state.has_evaluation()) last_ = state.evaluation();
  before_ = anew ? all_.size() : state.evaluations_before();
}

}  // namespace slackline::scheduler
