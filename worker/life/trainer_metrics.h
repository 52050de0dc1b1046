// Series of the trainer for Prometheus.
#pragma once

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
  void RecordEvaluation(double accuracy, absl::Duration took);

 private:
  Counter& steps_;
  Counter& samples_;
  Counter& pushed_bytes_;
  Counter& pulled_bytes_;
  Histogram& compute_seconds_;
  Histogram& data_wait_seconds_;
  Histogram& wait_seconds_;
  Histogram& push_seconds_;
  Histogram& pull_seconds_;
  Histogram& evaluation_seconds_;
  Counter& applied_;
  Counter& discarded_;
  Counter& quarantined_;
  Counter& lost_;
  Gauge& slack_;
  Gauge& staleness_;
  Gauge& clock_;
  Gauge& gradient_norm_;
  Gauge& loss_;
  Gauge& accuracy_;
  Counter& skipped_;
  Gauge& loss_scale_;
};

}  // namespace slackline::worker
