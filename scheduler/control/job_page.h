// JobPage: what the status page shows of a job.
#pragma once

#include "absl/time/time.h"
#include "scheduler/control/running_job.h"
#include "status.pb.h"

namespace slackline::scheduler {

// Thread-safety: that of the job.
// Ownership:     borrows the job.
class JobPage {
 public:
  explicit JobPage(const RunningJob& job) : job_(job) {}

  // Returns all that the controller knows of what the status page shows: no curve, events, alerts, disk or kept
  // checkpoints. A call does not count as somebody asking how the job has ended.
  wire::JobStatus View() const;

 private:
  void ViewProgress(absl::Time now, wire::JobProgress& out) const;
  void ViewAsynchrony(wire::JobAsynchrony& out) const;
  void ViewWorkers(absl::Time now, wire::JobStatus& out) const;
  wire::WorkerView ViewWorker(WorkerId id, const Membership::Worker& worker, absl::Time now) const;
  void ViewServers(absl::Time now, wire::JobStatus& out) const;
  void ViewServer(ServerId id, const Membership::Server& server, absl::Time now, wire::ServerView& out) const;
  void ViewShards(wire::JobStatus& out) const;

  const RunningJob& job_;
};

}  // namespace slackline::scheduler
