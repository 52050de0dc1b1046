// Derives the consistency engine's settings from the job file.
#pragma once

#include <cstdint>

#include "common/timeouts.h"
#include "job.pb.h"
#include "ps/consistency/engine.h"

namespace slackline::ps {

// `samples_per_epoch`: number of training images.
EngineConfig MakeEngineConfig(const job::Job& job, const Timeouts& timeouts, uint64_t samples_per_epoch);

}  // namespace slackline::ps
