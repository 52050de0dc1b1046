// What of a job can be simulated.
#pragma once

#include "absl/status/status.h"
#include "common/timeouts.h"
#include "job.pb.h"

namespace slackline::simulator {

Timeouts TimeoutsOf(const job::Job& job);

//   kInvalidArgument  names the setting, what it is, and what is allowed in a simulation
absl::Status CheckSimulation(const job::Job& job, bool gradients = true);

}  // namespace slackline::simulator
