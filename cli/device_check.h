// Whether the devices that a job names are here, asked of the worker's program: only that knows its build.
#pragma once

#include "absl/status/status.h"
#include "job.pb.h"

namespace slackline::cli {

// Asks only where the job names a GPU.
//   kFailedPrecondition  a GPU is not here, or this build has no CUDA
//   kNotFound            there is no slackline-worker beside this program
//   others               the program cannot be run
absl::Status CheckDevices(const job::Job& job);

}  // namespace slackline::cli
