// JobView: what people and programs see of a job: its status, its page, its figures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler.pb.h"
#include "scheduler/base/members_view.h"
#include "scheduler/control/running_job.h"
#include "scheduler/record/run_summary.h"
#include "status.pb.h"

namespace slackline::scheduler {

// Thread-safety: that of the job.
// Ownership:     borrows the job.
class JobView {
 public:
  explicit JobView(const RunningJob& job) : job_(job) {}

  // Returns what the job waits for while it starts; empty for nothing.
  std::string Missing() const;
  void FillProgress(absl::Time now, wire::GetStatusReply& reply) const;
  void FillMembers(absl::Time now, wire::GetStatusReply& reply) const;
  // Returns what is left of a run that diverges: "the last evaluation ...; no checkpoint was made".
  std::string LastGoodState() const;
  // Returns the members now; ScrapeTargets() returns the metrics endpoints of those that are present, sorted.
  MembersView Members() const;
  std::vector<ScrapeTarget> ScrapeTargets() const;
  // Returns the figures of the run up to now.
  RunSummary Summary() const;
  // Returns all that the controller knows of what the status page shows: no curve, events, alerts, disk or kept
  // checkpoints. A call does not count as somebody asking how the job has ended.
  wire::JobStatus View() const;

 private:
  // Returns the time until all is trained, at the speed of the latest minutes; nullopt if it cannot be told.
  std::optional<double> SecondsLeft(absl::Time now) const;
  void ViewProgress(absl::Time now, wire::JobProgress& out) const;
  void ViewAsynchrony(wire::JobAsynchrony& out) const;
  void ViewWorkers(absl::Time now, wire::JobStatus& out) const;
  wire::WorkerView ViewWorker(WorkerId id, const Membership::Worker& worker, absl::Time now) const;
  void ViewServers(absl::Time now, wire::JobStatus& out) const;
  void ViewServer(ServerId id, const Membership::Server& server, absl::Time now, wire::ServerView& out) const;
  void ViewShards(wire::JobStatus& out) const;
  // Returns a summary for each name, in the order in which the names were first heard of.
  std::vector<WorkerSummary> SummariseWorkers() const;

  const RunningJob& job_;
};

}  // namespace slackline::scheduler
