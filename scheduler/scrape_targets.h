// The file by which Prometheus finds the processes of a run: file_sd.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/members_view.h"

namespace slackline::scheduler {

// In the form of file_sd: each target with the labels slackline_job, process and role.
std::string ToFileSd(const std::string& job, const std::vector<ScrapeTarget>& targets);

// Where Prometheus finds a run among others, in a folder of all of them: JOB-RUN-HASH.json, by the job's name and the
// run folder's, and what tells run folders of one name apart.
std::string SharedTargetsFile(const std::string& folder, const std::string& job, const std::string& run_folder);

// Keeps RUN/prometheus/targets.json, and a file in a folder for all runs, if there is one.
//
// Thread-safety: none; one thread writes.
class ScrapeTargets {
 public:
  // `own`: the scheduler's own endpoint; empty: it serves none. `shared`: a folder for all runs; empty: none.
  ScrapeTargets(const std::string& run_folder, std::string job, std::string own, const std::string& shared = "");

  // Writes these and its own where they are not there yet; a reader sees the old file or the new one.
  //   kUnavailable  it cannot be written; the next call tries again
  absl::Status Write(std::vector<ScrapeTarget> targets);
  // The run has ended: nobody is there to ask, and the file among those of others is removed.
  absl::Status Clear();

 private:
  absl::Status Put(const std::string& text);

  const std::string file_;
  const std::string shared_;  // empty: none
  const std::string job_;
  const std::string own_;
  std::string written_;
};

}  // namespace slackline::scheduler
