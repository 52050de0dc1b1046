#pragma once

#include <string>

#include "scheduler.pb.h"
#include "scheduler/control/running_job.h"

namespace slackline::scheduler {

// Returns what the job waits for while it starts; empty for nothing.
std::string Missing(const RunningJob& job);
// Returns the answer to `slackline status`.
wire::GetStatusReply MakeStatus(const RunningJob& job);
// Returns what is left of a run that diverges: "the last evaluation ...; no checkpoint was made".
std::string LastGoodState(const RunningJob& job);

}  // namespace slackline::scheduler
