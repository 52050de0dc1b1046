// From the job file to the optimizer's numbers.
#pragma once

#include <cstdint>

#include "common/optimizer/optimizer.h"
#include "job.pb.h"

namespace slackline::ps {

// Turns the schedule's epochs into samples, with `samples_per_epoch` training images each.
OptimizerConfig MakeOptimizerConfig(const job::Job& job, uint64_t samples_per_epoch);

}  // namespace slackline::ps
