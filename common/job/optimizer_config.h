// Derives the optimizer's settings from the job file.
#pragma once

#include <cstdint>

#include "common/optimizer/optimizer.h"
#include "job.pb.h"

namespace slackline {

// Converts the schedule's epochs into samples: `samples_per_epoch` training images each.
OptimizerConfig MakeOptimizerConfig(const job::Job& job, uint64_t samples_per_epoch);

// Returns whether the optimizer's steps go on in the direction of those before: with momentum, or with moments.
bool KeepsDirection(const job::Optimizer& optimizer);

}  // namespace slackline
