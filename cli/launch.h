// `slackline launch`: a run on this machine whose workers are a script in Python.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/train.h"

namespace slackline::cli {

// A script as the workers' program.
struct ScriptOptions {
  // Empty: the workers are no scripts.
  std::string script;
  std::vector<std::string> arguments;
  // The interpreter: a path, or a name that $PATH has. Empty: python3.
  std::string python;
};

// What starts a worker; empty where there is no script.
//   kNotFound  there is no such script or interpreter
absl::StatusOr<std::vector<std::string>> CommandOf(const ScriptOptions& options);

struct LaunchOptions {
  // Its job file, overrides, run folder.
  TrainOptions train;
  ScriptOptions script;
  // Else as the job file says.
  std::optional<uint32_t> servers;
  std::optional<uint32_t> workers;
};

// As Train(). Returns the exit code.
int Launch(const LaunchOptions& options);
// As Resume(), of a run whose workers are `script`, or none.
int Resume(const ResumeOptions& options, const ScriptOptions& script);

}  // namespace slackline::cli
