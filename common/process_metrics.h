// What every process says of itself, under the names that Prometheus' own libraries use.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/metrics.h"

namespace slackline {

// The labels that all series of a process have.
Metrics::Labels ProcessLabels(absl::string_view job, absl::string_view process, absl::string_view role);

// Adds start time, processor time, memory and open files of this process, looked up when somebody asks, and
// slackline_build_info.
void AddProcessSeries(Metrics& metrics);

// Sets the free and all bytes of the file system that `folder` lies on; nothing where the system does not say. May wait
// for that file system: for threads that write there anyway.
class DiskSeries {
 public:
  // `room`: as in names of series. `label`: what the folder is for.
  // Ownership: borrows `metrics`.
  DiskSeries(Metrics& metrics, const std::string& room, const std::string& label);
  void Look(const std::string& folder);

 private:
  Gauge& free_;
  Gauge& size_;
};

}  // namespace slackline
