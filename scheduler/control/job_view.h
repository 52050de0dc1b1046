// JobView: the status of a job, for `slackline status` and for messages.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "scheduler.pb.h"
#include "scheduler/control/running_job.h"

namespace slackline::scheduler {

// Thread-safety: that of the job.
// Ownership:     borrows the job.
class JobView {
 public:
  explicit JobView(const RunningJob& job) : job_(job) {}

  // Returns what the job waits for while it starts; empty for nothing.
  std::string Missing() const;
  wire::GetStatusReply Status() const;
  // Returns what is left of a run that diverges: "the last evaluation ...; no checkpoint was made".
  std::string LastGoodState() const;

 private:
  void FillProgress(absl::Time now, wire::GetStatusReply& reply) const;
  void FillMembers(absl::Time now, wire::GetStatusReply& reply) const;

  const RunningJob& job_;
};

}  // namespace slackline::scheduler
