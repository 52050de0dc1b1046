// A job with its images.
#pragma once

#include "absl/status/statusor.h"
#include "images/formats/data_format.h"
#include "worker/settings/job_config.h"

namespace slackline::worker {

// The images of a job, and the model that fits them.
struct LoadedJob : images::JobData {
  ModelSpec spec = {};
};
// Reads the images, which may come from `peers`, and fits the model.
//   kNotFound, kInvalidArgument  the data cannot be read or does not fit the model
absl::StatusOr<LoadedJob> LoadJob(const WorkerConfig& config, images::ImagePeers* peers = nullptr);

}  // namespace slackline::worker
