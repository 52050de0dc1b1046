// Measures weights of a file on the images of a job, without a scheduler and servers.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "worker/job_config.h"

namespace slackline::worker {

struct WeightsToEvaluate {
  std::string path;   // safetensors
  std::string split;  // train, validation or test; empty: data.evaluation_split
  std::string out;    // where report.json and confusion.csv go
};

// On one device, the first that the job names; the weights must have the job's number of classes.
//   kInvalidArgument   no such split, or what is wrong with the weights or the data
//   kNotFound          a file or a device is missing
//   kUnavailable, kResourceExhausted  the report cannot be written
absl::Status EvaluateWeights(const WeightsToEvaluate& what, WorkerConfig config);

}  // namespace slackline::worker
