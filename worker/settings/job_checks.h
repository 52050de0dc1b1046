// Checks of a job that need neither its images nor its weights nor LibTorch.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "job.pb.h"
#include "worker/settings/job_config.h"

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

// Checks that each device's part of a batch has at least two images, if the loss tells an image from others of the
// part. The reader of the job file cannot know how many devices worker.devices: auto means.
//   kInvalidArgument  names training.batch_size
absl::Status CheckParts(const WorkerConfig& config, size_t devices);

}  // namespace slackline::worker
