// Checks of a job that need neither its images nor its weights nor LibTorch.
#pragma once

#include "absl/status/status.h"
#include "job.pb.h"

namespace slackline::worker {

// Checks the job alone, and returns what a worker would refuse, in its words:
// - a model that cannot be built, with any images or with images of data.decode.size, or that cannot be cut into
//   worker.stages
// - a group of optimizer.groups or wire.groups that matches no parameter
// - a data.decode.size that is not a size
// Returns OK also for models of which this is not known: the models of scripts, and TorchScript, whose parameters
// LibTorch alone can name.
//   kInvalidArgument  names the setting; for groups also the parameters that exist
absl::Status CheckJob(const job::Job& given);

}  // namespace slackline::worker
