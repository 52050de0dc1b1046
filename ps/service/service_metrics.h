// What a server process counts, in one place, so that every series is there from the start.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "common/metrics.h"

namespace slackline::ps {

// Thread-safety: safe.
// Ownership:     borrows `metrics`, which owns the series.
class ServiceMetrics {
 public:
  explicit ServiceMetrics(Metrics& metrics);

  void Refused(absl::StatusCode code);

  Counter& pushes_applied;
  Counter& pushes_discarded;
  Counter& pushes_lost;
  Counter& bytes_received;
  Counter& bytes_sent;
  Histogram& staleness;
  Histogram& apply_seconds;
  Gauge& version_min;
  Gauge& version_max;
  Gauge& staging_bytes;
  Gauge& waiting_pulls;
  Gauge& pinned_versions;
  Gauge& held_pushes;
  Gauge& live_workers;
  Gauge& streams;
  Gauge& resident_bytes;

 private:
  std::map<absl::StatusCode, Counter*> refused_;
};

// Resident memory of this process, in bytes; 0 where the system does not say.
uint64_t ResidentBytes();

}  // namespace slackline::ps
