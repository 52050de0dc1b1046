// From the job file to the consistency engine's settings.
#pragma once

#include "common/timeouts.h"
#include "job.pb.h"
#include "ps/consistency/engine.h"

namespace slackline::ps {

EngineConfig MakeEngineConfig(const job::Job& job, const Timeouts& timeouts);

}  // namespace slackline::ps
