// Metrics of a server process, declared in one place so that every series exists from the start.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "common/metrics/process_metrics.h"
#include "ps/consistency/events.h"

namespace slackline::ps {

// Counts what a server process does.
//
// Thread-safety: safe.
// Ownership:     borrows `metrics`, which owns the series.
class ServiceMetrics {
 public:
  explicit ServiceMetrics(Metrics& metrics);

  // Number of workers that are counted by name. Further workers are counted together, as kOtherWorkers, because names
  // come from outside and may be many.
  static constexpr size_t kNamedWorkersMax = 64;
  static constexpr char kOtherWorkers[] = "(others)";

  void Refused(absl::StatusCode code);
  // Counts a push that is discarded for good. If it was late or an outlier, its worker is counted too.
  void Discarded(DiscardReason reason, const std::string& worker) ABSL_LOCKS_EXCLUDED(mutex_);
  // Counts a pull that is served after it has waited for so long.
  void Served(absl::Duration waited);
  // Counts a wait that `worker` caused: a pull of another worker waited for so long until a push of `worker` set it
  // free.
  void Awaited(const std::string& worker, absl::Duration waited) ABSL_LOCKS_EXCLUDED(mutex_);

  Counter& pushes_applied;
  Counter& pushes_lost;
  Counter& pushes_uncompensated;
  Counter& bytes_received;
  Counter& bytes_sent;
  Counter& pulls;
  Histogram& pull_wait_seconds;
  Histogram& staleness;
  Histogram& apply_seconds;
  Gauge& version_min;
  Gauge& version_max;
  Gauge& shards;
  Gauge& weight_bytes;
  Gauge& optimizer_bytes;
  Gauge& staging_bytes;
  Gauge& staging_bytes_max;
  Gauge& waiting_pulls;
  Gauge& pinned_versions;
  Gauge& reference_versions;
  Gauge& prediction_steps;
  Gauge& held_pushes;
  Gauge& live_workers;
  Gauge& streams;
  Gauge& resident_bytes;
  Counter& snapshots;
  Counter& snapshots_failed;
  Counter& checkpoints;
  Counter& checkpoints_failed;
  Histogram& snapshot_seconds;
  Gauge& snapshot_taken;
  Gauge& snapshot_bytes;
  Gauge& snapshot_interval_seconds;
  Histogram& checkpoint_seconds;
  DiskSeries snapshot_disk;
  DiskSeries checkpoint_disk;
  Gauge& backup_in_step;
  Gauge& replication_lag_items;
  Gauge& replication_lag_seconds;

 private:
  // Series of one worker.
  struct OfWorker {
    Counter& late;
    Counter& quarantined;
    Counter& awaited_seconds;
  };
  OfWorker& Of(const std::string& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Metrics& metrics_;
  absl::Mutex mutex_;
  std::map<std::string, OfWorker> workers_ ABSL_GUARDED_BY(mutex_);
  std::map<absl::StatusCode, Counter*> refused_;
  std::map<DiscardReason, Counter*> discarded_;
};

// Returns the resident memory of this process in bytes; 0 if the system does not say.
uint64_t ResidentBytes();

}  // namespace slackline::ps
