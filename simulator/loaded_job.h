// The images of a job, and the model that fits them, before anything is computed.
#pragma once

#include "absl/status/statusor.h"
#include "images/formats/data_format.h"
#include "worker/settings/job_config.h"

namespace slackline::simulator {

struct LoadedJob {
  images::JobData data;
  worker::ModelSpec spec;
};

//   kNotFound, kInvalidArgument  the data cannot be read or does not fit the model
absl::StatusOr<LoadedJob> LoadJob(const worker::WorkerConfig& config);

}  // namespace slackline::simulator
