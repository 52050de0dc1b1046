#pragma once

#include "scheduler/control/running_job.h"
#include "status.pb.h"

namespace slackline::scheduler {

// Returns all that the controller knows of what the status page shows: no curve, events, alerts, disk or kept
// checkpoints. A call does not count as somebody asking how the job has ended.
wire::JobStatus MakePage(const RunningJob& job);

}  // namespace slackline::scheduler
