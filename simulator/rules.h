// Rules for the jobs that can be simulated.
#pragma once

#include "absl/status/status.h"
#include "job.pb.h"

namespace slackline::simulator {

// Checks that `job` can be simulated; with `gradients`, also that its gradients can be computed.
//   kInvalidArgument  names the setting, its value, and the values allowed in a simulation
absl::Status CheckSimulation(const job::Job& job, bool gradients = true);

}  // namespace slackline::simulator
