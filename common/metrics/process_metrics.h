// Metrics that every process has, under the names that Prometheus' own libraries use.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/metrics/metrics.h"

namespace slackline {

// Returns the labels that all series of a process have.
Metrics::Labels ProcessLabels(absl::string_view job, absl::string_view process, absl::string_view role);

// Adds start time, processor time, memory and open files of this process, which are looked up on request, and
// slackline_build_info.
void AddProcessSeries(Metrics& metrics);

// Series of the free and total bytes of the file system that holds a folder. If the system does not tell, the series
// keep their values. Look() may wait for that file system, so call it on threads that write there anyway.
class DiskSeries {
 public:
  // `room` is the part ROOM of the series' names. `label` is the purpose of the folder.
  // Ownership: borrows `metrics`.
  DiskSeries(Metrics& metrics, const std::string& room, const std::string& label);
  void Look(const std::string& folder);

 private:
  Gauge& free_;
  Gauge& size_;
};

}  // namespace slackline
