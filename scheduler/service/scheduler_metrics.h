// The scheduler's Prometheus series.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "common/metrics/metrics.h"
#include "common/metrics/process_metrics.h"
#include "job.pb.h"
#include "scheduler/base/members_view.h"
#include "scheduler/base/report.h"

namespace slackline::scheduler {

// Thread-safety: none; one thread publishes.
// Ownership:     borrows `metrics`.
class SchedulerMetrics {
 public:
  explicit SchedulerMetrics(Metrics& metrics);

  void Publish(const Report& report);
  void Publish(const MembersView& members);
  // Publishes what stays the same for a whole run: what the job is, and how often checkpoints are made.
  void SetJob(const job::Job& job, const std::string& run);

  DiskSeries run_disk;
  DiskSeries checkpoint_disk;

 private:
  // Publishes figures that scripts named, at most kMetricNamesMax names of them: `names` has those with a series.
  void PublishNamed(const std::string& series, const std::string& help, const NamedValues& values,
                    std::set<std::string>& names);
  void PublishClocks(const std::map<std::string, uint64_t>& clocks);

  Metrics& metrics_;
  Gauge& live_workers_;
  Gauge& live_servers_;
  Counter& shard_moves_;
  Gauge& epoch_;
  Gauge& loss_;
  Gauge& test_loss_;
  Gauge& learning_rate_;
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
  Gauge& checkpoint_interval_;
  Gauge& workers_wanted_;
  Gauge& servers_wanted_;
  Gauge& backups_wanted_;
  Gauge& samples_done_;
  Gauge& samples_wanted_;
  Counter& events_;
  std::set<std::string> clocks_;  // workers whose clocks have a series
  std::set<std::string> train_names_;
  std::set<std::string> test_names_;
};

}  // namespace slackline::scheduler
