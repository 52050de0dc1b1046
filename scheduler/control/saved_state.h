// The state that outlives the scheduler: saved as a whole now and then, and gone on from when it is started again.
#pragma once

#include "absl/time/time.h"
#include "scheduler/control/running_job.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// Number that says how the state is written.
inline constexpr uint32_t kStateFormat = 1;

// Returns the state that a restarted scheduler needs to continue from here. `wall_time`: infinite past if it does not
// matter.
state::Scheduler SaveState(const RunningJob& job, absl::Time wall_time);
Membership::State MembersFromState(const state::Members& state, absl::Time now);

}  // namespace slackline::scheduler
