// The images of a job, and what is said of them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/job_config.h"

namespace slackline::worker {

struct JobData {
  Dataset train;
  Dataset test;                          // what evaluations are on
  std::vector<std::string> class_names;  // one a class
  // Of the training images: another one where they are others. 0: not known, of data.format folder and webdataset.
  uint64_t fingerprint = 0;
};

// Reads or maps them, and checks that they fit the model.
//   kNotFound          a file is missing
//   kInvalidArgument   a file is broken, or the model has another number of classes
//   kDataLoss          a checksum differs
// `peers`: workers on other nodes, to get prepared images with; null: there are none. It lives as long as the data.
absl::StatusOr<JobData> ReadJobData(const WorkerConfig& config, ImagePeers* peers = nullptr);

}  // namespace slackline::worker
