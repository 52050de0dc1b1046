// From the job file to the consistency engine's settings.
#pragma once

#include <cstdint>

#include "common/timeouts.h"
#include "job.pb.h"
#include "ps/consistency/engine.h"

namespace slackline::ps {

// `samples_per_epoch`: training images.
EngineConfig MakeEngineConfig(const job::Job& job, const Timeouts& timeouts, uint64_t samples_per_epoch);

}  // namespace slackline::ps
