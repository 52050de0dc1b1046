// MemberRequests: answers the requests of servers and workers, as scheduler.proto describes them.
//
// A request is checked, JobCourse does what follows from it for the other members, and the reply is filled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "scheduler.pb.h"
#include "scheduler/control/job_course.h"
#include "scheduler/control/running_job.h"

namespace slackline::scheduler {

// Returns an error if `who` was started with another job file.
absl::Status CheckFingerprint(const JobConfig& config, const std::string& who, uint64_t fingerprint);

// Thread-safety: none; the controller calls it under its lock.
// Ownership:     borrows all that the constructor takes.
class MemberRequests {
 public:
  // `observer`: gets the outcomes of the calls to servers that register.
  MemberRequests(RunningJob& job, JobCourse& course, ServerObserver& observer)
      : job_(job), course_(course), observer_(observer) {}

  absl::StatusOr<wire::RegisterServerReply> RegisterServer(const wire::RegisterServerRequest& request);
  absl::StatusOr<wire::RegisterWorkerReply> RegisterWorker(const wire::RegisterWorkerRequest& request);
  absl::StatusOr<wire::HeartbeatReply> Heartbeat(const wire::HeartbeatRequest& request);
  absl::StatusOr<wire::GetShardMapReply> GetShardMap(const wire::GetShardMapRequest& request) const;
  // `distances`: see DataRanges::Pace.
  absl::StatusOr<wire::NextTaskReply> NextTask(const wire::NextTaskRequest& request,
                                               absl::Span<const uint8_t> distances);
  absl::StatusOr<wire::LeasePartsReply> LeaseParts(const wire::LeasePartsRequest& request);
  absl::Status ReportEvaluation(const wire::EvaluationReport& request);
  absl::Status ReportExit(const wire::ReportExitRequest& request);

 private:
  // Returns the worker whose place this process takes, if any: its own earlier life, or a silent worker of its name.
  //   kUnavailable    a worker of this name may be alive: ask again
  //   kAlreadyExists  a worker of this name is alive
  absl::StatusOr<std::optional<WorkerId>> PreviousOf(const wire::RegisterWorkerRequest& request, absl::Time now);
  absl::StatusOr<wire::HeartbeatReply> WorkerHeartbeat(const wire::HeartbeatRequest& request, absl::Time now);
  absl::StatusOr<wire::HeartbeatReply> ServerHeartbeat(const wire::HeartbeatRequest& request, absl::Time now);
  wire::HeartbeatReply SpareHeartbeat(const wire::HeartbeatRequest& request, absl::Time now);
  wire::NextTaskReply Hand(const Holder& holder, const Work& work, absl::Time now);

  RunningJob& job_;
  JobCourse& course_;
  ServerObserver& observer_;
};

}  // namespace slackline::scheduler
