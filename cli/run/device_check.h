// Checks that the devices of a job exist on this machine. The worker's program does the check: only it knows its build.
#pragma once

#include "absl/status/status.h"
#include "job.pb.h"

namespace slackline::cli {

// Checks the devices, but only if the job names a GPU.
//   kFailedPrecondition  a GPU is not here, or this build has no CUDA
//   kNotFound            there is no slackline-worker beside this program
//   others               the program cannot be run
absl::Status CheckDevices(const job::Job& job);

}  // namespace slackline::cli
