// A script in Python in the place of the workers' program.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "job.pb.h"

namespace slackline::cli {

struct ScriptOptions {
  // Empty: the workers are no scripts.
  std::string script;
  std::vector<std::string> arguments;
  // The interpreter: a path, or a name that $PATH has. Empty: python3.
  std::string python;
};

// What starts a worker; empty where there is no script.
//   kNotFound         there is no such script or interpreter
//   kInvalidArgument  an interpreter or arguments without a script
absl::StatusOr<std::vector<std::string>> CommandOf(const ScriptOptions& options);

// As CommandOf(), of a run that goes on: without a script in `options` it is the one that was kept with the run.
//   kNotFound  also: the script that was kept is not there any more
absl::StatusOr<std::vector<std::string>> CommandToGoOn(const ScriptOptions& options, const std::filesystem::path& run);

// What a user types to begin a run of `command` anew, which CommandOf() has returned and which is not empty.
std::string LaunchText(const std::vector<std::string>& command, const std::string& job_file);

// The script in what CommandOf() has returned; empty where there is none.
std::string ScriptIn(const std::vector<std::string>& command);

// As ReadJobFile(), of a job whose workers are `script`, or none: adds to `overrides` what follows from that.
absl::StatusOr<job::Job> ReadJobOfWorkers(const std::vector<std::string>& script, const std::string& job_file,
                                          std::vector<std::string>& overrides);

// Who can train this model.
//   kInvalidArgument  nobody: a script would have to bring it, and there is none
absl::Status CheckWorkers(const std::vector<std::string>& script, const job::Job& job);

// Keeps `script`, if there is one, with the run, for when it goes on.
//   kUnavailable  the system refused
absl::Status KeepScript(const std::vector<std::string>& script, const std::filesystem::path& run);
// What was kept; empty where nothing was.
std::vector<std::string> KeptScript(const std::filesystem::path& run);

// What a script finds in its environment, as NAME=VALUE, of the arguments that the worker's program would get.
std::vector<std::string> EnvironmentOf(const std::vector<std::string>& worker_arguments);

}  // namespace slackline::cli
