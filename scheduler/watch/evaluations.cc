#include "scheduler/watch/evaluations.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/counted.h"
#include "common/job/job_kinds.h"
#include "common/metrics/test_accuracy.h"
#include "common/metrics/test_metric.h"
#include "scheduler/watch/early_stopping.h"

namespace slackline::scheduler {
namespace {

// An evaluation that is larger is kept without its classes: a little more than scheduler.proto allows them to take.
constexpr size_t kEvaluationBytesMax = (1 << 20) + (64 << 10);

// Returns "test accuracy 86.21 %, loss 0.3512", or the figures that the evaluation has instead.
std::string FiguresOf(const wire::EvaluationReport& report) {
  if (report.has_map_50()) {
    return absl::StrFormat("mAP %.2f %%, %.2f %% at an overlap of 0.5,", 100 * report.accuracy(),
                           100 * report.map_50());
  }
  const std::optional<double> accuracy = TestAccuracyOf(report);
  if (!accuracy) return absl::StrFormat("test loss %.4f", report.loss());
  return absl::StrFormat("test accuracy %.2f %%, loss %.4f", 100 * *accuracy, report.loss());
}

// Returns "epoch 2: test accuracy 86.21 %, loss 0.3512 on 10000 images (worker-1)".
std::string Told(const job::Job& job, const wire::EvaluationReport& report, const EvaluationSummary& begun,
                 const std::string& by) {
  const std::string when = report.at_samples() > 0 && !report.final()
                               ? absl::StrCat("after ", Counted(begun.samples_applied, "sample"))
                               : absl::StrCat("epoch ", report.epoch());
  return absl::StrFormat("%s: %s on %d %s (%s)", when, FiguresOf(report), report.samples(), SamplesNoun(job), by);
}

}  // namespace

Evaluations::Judgement Evaluations::Note(const wire::EvaluationReport& report, const EvaluationSummary& begun,
                                         const std::string& by) {
  last_ = report;
  // Every reply to a request for the status contains the report.
  if (last_->ByteSizeLong() > kEvaluationBytesMax) last_->clear_classes();
  reported_ = false;
  EvaluationSummary& summary = all_.emplace_back(begun);
  summary.epoch = report.epoch();
  summary.accuracy = TestAccuracyOf(report);
  summary.loss = report.loss();
  summary.map = report.has_map_50();
  // The first evaluation of the run speaks for the later ones.
  const bool lacks = all_.size() == before_ + 1 && !summary.accuracy;
  return {.told = Told(job_, report, begun, by),
          .warning = lacks ? WarnOfNoAccuracy(job_) : std::nullopt,
          .best = job_.checkpoint().keep_best() > 0 && LastIsBest(job_.checkpoint().metric(), all_),
          .ends = WhyEarly(job_.training().early_stopping(), all_, before_)};
}

std::string Evaluations::Metric() const { return std::string(MeasuresMap(job_, last_) ? kMapMetric : kAccuracyMetric); }

void Evaluations::Report(scheduler::Report& report) {
  if (!last_ || reported_) return;
  report.finds_objects = last_->has_map_50();
  if (!report.finds_objects) report.test_loss = last_->loss();
  report.test_accuracy = TestAccuracyOf(*last_);
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
