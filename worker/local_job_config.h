// From the job file to what a round of local training is.
#pragma once

#include "job.pb.h"
#include "worker/local/local_config.h"

namespace slackline::worker {

LocalConfig MakeLocalConfig(const job::Local& local);

}  // namespace slackline::worker
