// Measures the weights in a file on the images of a job, without a scheduler and servers.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "worker/settings/job_config.h"

namespace slackline::worker {

struct WeightsToEvaluate {
  std::string path;   // a safetensors file
  std::string split;  // train, validation or test; empty: that of the run's last evaluation
  std::string out;    // folder for report.json and confusion.csv
};

// Measures the weights on one device, the first that the job names. The weights must have the number of classes of the
// job.
//   kInvalidArgument   the split does not exist or cannot be used, or the weights or the data are wrong
//   kNotFound          a file is missing
//   kFailedPrecondition  a device is missing
//   kUnavailable, kResourceExhausted  the report cannot be written
absl::Status EvaluateWeights(const WeightsToEvaluate& what, WorkerConfig config);

}  // namespace slackline::worker
