// Images of a job, and facts about them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/settings/job_config.h"

namespace slackline::worker {

struct JobData {
  images::Dataset train;
  images::Dataset test;                  // images of evaluations
  std::vector<std::string> class_names;  // name of each class
  // Fingerprint of the training images, which differs for other images. 0: not known, for data.format folder and
  // webdataset.
  uint64_t fingerprint = 0;
};

// Reads or maps the images, and checks that they fit the model.
//   kNotFound          a file is missing
//   kInvalidArgument   a file is broken, or the model has another number of classes
//   kDataLoss          a checksum differs
// `peers`: workers on other nodes with which this one fetches prepared images; null: there are none. It lives as long
// as the data.
absl::StatusOr<JobData> ReadJobData(const WorkerConfig& config, images::ImagePeers* peers = nullptr);

}  // namespace slackline::worker
