// `slackline launch`: a run on this machine whose workers are a script in Python.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/train.h"

namespace slackline::cli {

struct LaunchOptions {
  // Its job file, overrides, run folder.
  TrainOptions train;
  std::string script;
  std::vector<std::string> arguments;  // of the script
  // The interpreter: a path, or a name that $PATH has. Empty: python3.
  std::string python;
  // Else as the job file says.
  std::optional<uint32_t> servers;
  std::optional<uint32_t> workers;
};

// The options of the run: the script as the workers' program, and what the flags override.
//   kNotFound         there is no such script or interpreter
//   kInvalidArgument  the job file is wrong
absl::StatusOr<TrainOptions> ToTrainOptions(const LaunchOptions& options);

// As Train(). Returns the exit code.
int Launch(const LaunchOptions& options);

}  // namespace slackline::cli
