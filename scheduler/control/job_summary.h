// JobSummary: figures of a job for programs: summary.json, and what monitoring sees of the members.
#pragma once

#include <vector>

#include "scheduler/base/members_view.h"
#include "scheduler/control/running_job.h"
#include "scheduler/record/run_summary.h"

namespace slackline::scheduler {

// Thread-safety: that of the job.
// Ownership:     borrows the job.
class JobSummary {
 public:
  explicit JobSummary(const RunningJob& job) : job_(job) {}

  // Returns the figures of the run up to now.
  RunSummary Summary() const;
  MembersView Members() const;

 private:
  // Returns a summary for each name, in the order in which the names were first heard of.
  std::vector<WorkerSummary> SummariseWorkers() const;
  std::vector<ScrapeTarget> ScrapeTargets() const;

  const RunningJob& job_;
};

}  // namespace slackline::scheduler
