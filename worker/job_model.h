// What can be known to be wrong with a job's model where there are neither its images nor its weights, nor LibTorch.
#pragma once

#include "absl/status/status.h"
#include "job.pb.h"

namespace slackline::worker {

// Whether the model can be built, whatever its images, and the groups of optimizer.groups and wire.groups match some of
// its parameters: in the words of a worker that builds it. OK, too, for models of which that is not known: scripts',
// and TorchScript, whose parameters LibTorch alone can name.
//   kInvalidArgument  names the group, and the parameters that there are
absl::Status CheckModel(const job::Job& job);

}  // namespace slackline::worker
