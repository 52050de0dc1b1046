// Series of the trainer for Prometheus.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "worker/base/progress.h"

namespace slackline::worker {

// Thread-safety: safe.
// Ownership:     borrows `metrics`.
class TrainerMetrics {
 public:
  explicit TrainerMetrics(slackline::Metrics& metrics);

  void Record(const StepFacts& step);
  // Set the factor of the loss in fp16. RecordSkipped() also counts a step that was skipped because the factor before
  // `scale` was too large.
  void RecordLossScale(double scale) { loss_scale_.Set(scale); }
  void RecordSkipped(double scale) {
    skipped_.Add();
    RecordLossScale(scale);
  }
  // Records an evaluation; a worker that has measured no accuracy has no series of it.
  void RecordEvaluation(const std::optional<double>& accuracy, absl::Duration took);

 private:
  struct FigureSeries {
    const StepFigure* figure = nullptr;
    const StepFigure* without = nullptr;  // part of the figure that the series leaves out; null for none
    std::function<void(double)> record = {};
  };

  // Makes the series of kFigures.
  static std::vector<FigureSeries> MakeSeries(slackline::Metrics& metrics);

  slackline::Metrics& metrics_;
  Counter& steps_;
  std::vector<FigureSeries> figures_;
  Histogram& evaluation_seconds_;
  Gauge& loss_;
  Counter& skipped_;
  Gauge& loss_scale_;
};

}  // namespace slackline::worker
