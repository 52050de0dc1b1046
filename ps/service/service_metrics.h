// What a server process counts, in one place, so that every series is there from the start.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/metrics.h"

namespace slackline::ps {

// Thread-safety: safe.
// Ownership:     borrows `metrics`, which owns the series.
class ServiceMetrics {
 public:
  explicit ServiceMetrics(Metrics& metrics);

  // Workers beyond this number are counted together, as kOtherWorkers: names come from outside and may be many.
  static constexpr size_t kNamedWorkersMax = 64;
  static constexpr char kOtherWorkers[] = "(others)";

  void Refused(absl::StatusCode code);
  // A sub-push of this worker was discarded because its step was closed.
  void Late(const std::string& worker) ABSL_LOCKS_EXCLUDED(mutex_);
  // Because its norm was far above the others'.
  void Quarantined(const std::string& worker) ABSL_LOCKS_EXCLUDED(mutex_);

  Counter& pushes_applied;
  Counter& pushes_discarded;
  Counter& pushes_lost;
  Counter& pushes_uncompensated;
  Counter& bytes_received;
  Counter& bytes_sent;
  Histogram& staleness;
  Histogram& apply_seconds;
  Gauge& version_min;
  Gauge& version_max;
  Gauge& staging_bytes;
  Gauge& waiting_pulls;
  Gauge& pinned_versions;
  Gauge& reference_versions;
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
  Gauge& backup_in_step;

 private:
  void CountByWorker(const char* name, const char* help, const std::string& worker) ABSL_LOCKS_EXCLUDED(mutex_);

  Metrics& metrics_;
  absl::Mutex mutex_;
  std::set<std::string> named_ ABSL_GUARDED_BY(mutex_);  // have a series of their own
  std::map<absl::StatusCode, Counter*> refused_;
};

// Resident memory of this process, in bytes; 0 where the system does not say.
uint64_t ResidentBytes();

}  // namespace slackline::ps
