// The scheduler's Prometheus series.
#pragma once

#include "common/metrics.h"
#include "scheduler/report.h"

namespace slackline::scheduler {

// Thread-safety: none; one thread publishes.
// Ownership:     borrows `metrics`.
class SchedulerMetrics {
 public:
  explicit SchedulerMetrics(Metrics& metrics);

  void Publish(const Report& report);

 private:
  Gauge& live_workers_;
  Gauge& live_servers_;
  Counter& shard_moves_;
  Gauge& epoch_;
  Gauge& loss_;
  Gauge& train_accuracy_;
  Gauge& test_accuracy_;
  Gauge& samples_per_second_;
  Gauge& slack_;
  Gauge& staleness_mean_;
  Gauge& staleness_max_;
  Gauge& gradient_norm_max_;
  Counter& divergences_;
  Gauge& staleness_bound_;
  Counter& staleness_bound_changes_;
  Counter& steps_;
  Counter& samples_;
  Counter& deaths_;
  Counter& given_twice_;
  Counter& checkpoints_;
  Counter& checkpoints_failed_;
  Gauge& checkpoint_age_;
};

}  // namespace slackline::scheduler
