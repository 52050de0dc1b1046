// File by which Prometheus finds the processes of a run, in the format file_sd.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/members_view.h"

namespace slackline::scheduler {

// Returns the targets in the format file_sd, each with the labels slackline_job, run, process and role.
std::string ToFileSd(const std::string& job, const std::string& run, const std::vector<ScrapeTarget>& targets);

// Returns the path of a run's file in `folder`, where Prometheus finds all runs: JOB-RUN-HASH.json. JOB is the job's
// name, RUN the run's name, and HASH tells apart run folders of one name.
std::string SharedTargetsFile(const std::string& folder, const std::string& job, const std::string& run_folder);

// Keeps RUN/prometheus/targets.json, and a file in a folder for all runs, if there is one.
//
// Thread-safety: none; one thread writes.
class ScrapeTargets {
 public:
  // `own`: the scheduler's own endpoint; empty: it has none. `shared`: a folder for all runs; empty: none.
  ScrapeTargets(const std::string& run_folder, std::string job, std::string own, const std::string& shared = "");

  // Writes the targets and the scheduler's own endpoint if they have changed; a reader sees the old file or the new
  // one.
  //   kUnavailable  the file cannot be written; the next call tries again
  absl::Status Write(std::vector<ScrapeTarget> targets);
  // Empties the file and removes the one in the shared folder: the run has ended, and no process is left to ask.
  absl::Status Clear();

 private:
  absl::Status Put(const std::string& text);

  const std::string file_;
  const std::string shared_;  // empty: none
  const std::string job_;
  const std::string run_;
  const std::string own_;
  std::string written_;
};

}  // namespace slackline::scheduler
