// What can be known to be wrong with a job where there are neither its images nor its weights, nor LibTorch.
#pragma once

#include "absl/status/status.h"
#include "job.pb.h"

namespace slackline::worker {

// What a worker would refuse of the job alone, in its words: a model that cannot be built, whatever its images or of
// images of data.decode.size, or cut into worker.stages; groups of optimizer.groups and wire.groups that match no
// parameter; a data.decode.size that is none. OK, too, for models of which that is not known: scripts', and
// TorchScript, whose parameters LibTorch alone can name.
//   kInvalidArgument  names the setting; of groups the parameters that there are, too
absl::Status CheckJob(const job::Job& given);

}  // namespace slackline::worker
