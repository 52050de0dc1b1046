#pragma once

#include "scheduler/base/members_view.h"
#include "scheduler/control/running_job.h"
#include "scheduler/record/run_summary.h"

namespace slackline::scheduler {

// Returns the figures of the run up to now, for summary.json.
RunSummary MakeSummary(const RunningJob& job);
// Returns the members as monitoring sees them.
MembersView MakeMembersView(const RunningJob& job);

}  // namespace slackline::scheduler
