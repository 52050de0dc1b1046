// The trainer's series for Prometheus.
#pragma once

#include "common/metrics.h"
#include "worker/progress.h"

namespace slackline::worker {

// Thread-safety: safe.
// Ownership:     borrows `metrics`.
class TrainerMetrics {
 public:
  explicit TrainerMetrics(slackline::Metrics& metrics);

  void Record(const StepFacts& step);
  void RecordEvaluation(double accuracy);

 private:
  Counter& steps_;
  Counter& samples_;
  Histogram& compute_seconds_;
  Histogram& wait_seconds_;
  Counter& applied_;
  Counter& discarded_;
  Counter& lost_;
  Gauge& slack_;
  Gauge& staleness_;
  Gauge& loss_;
  Gauge& accuracy_;
};

}  // namespace slackline::worker
