// Checks that a saved state makes sense, by itself and for the job: a scheduler relies on it without looking again.
#pragma once

#include "absl/status/status.h"
#include "job.pb.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// Returns OK if the state makes sense.
//   kDataLoss  it does not; the message names what is wrong, and what is allowed
absl::Status CheckState(const state::Scheduler& state, const job::Job& job);

}  // namespace slackline::scheduler
