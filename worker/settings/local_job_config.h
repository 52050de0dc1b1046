// Converts the job file into the settings of a round of local training.
#pragma once

#include "job.pb.h"
#include "worker/local_training/local_config.h"

namespace slackline::worker {

LocalConfig MakeLocalConfig(const job::Local& local);

}  // namespace slackline::worker
