// A Python script that replaces the workers' program.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/base/start_text.h"
#include "job.pb.h"

namespace slackline::cli {

struct ScriptOptions {
  // Path of the script. Empty: the workers are no scripts.
  std::string script;
  std::vector<std::string> arguments;
  // Python interpreter: a path, or a name that $PATH has. Empty: python3.
  std::string python;
};

// Returns the command that starts a worker; empty if there is no script.
//   kNotFound         there is no such script or interpreter
//   kInvalidArgument  an interpreter or arguments without a script
absl::StatusOr<std::vector<std::string>> CommandOf(const ScriptOptions& options);

// Same as CommandOf(), for a resumed run: without a script in `options`, returns the one that was kept with the run.
//   kNotFound  also: the script that was kept does not exist any more
absl::StatusOr<std::vector<std::string>> CommandToGoOn(const ScriptOptions& options, const std::filesystem::path& run);

// Returns whether a folder of $PATH has the program.
bool IsInPath(const std::string& program);

// Checks that the interpreter in `command`, which comes from CommandOf(), exists on this machine.
//   kNotFound  no folder of $PATH has it
absl::Status CheckInterpreter(const std::vector<std::string>& command);

// Returns the command that starts a run of `job_file` with `overrides`. `script` comes from CommandOf(); empty for
// none.
StartText StartTextOf(const std::string& program, const std::vector<std::string>& script, const std::string& job_file,
                      const std::vector<std::string>& overrides);

// Returns the script in `command`, which comes from CommandOf(); empty if there is none.
std::string ScriptIn(const std::vector<std::string>& command);

// Returns the interpreter in `command`, which comes from CommandOf(): a path or a name on PATH; empty if there is none.
std::string InterpreterIn(const std::vector<std::string>& command);

// Returns the script's arguments in `command`, which comes from CommandOf().
std::vector<std::string> ArgumentsIn(const std::vector<std::string>& command);

// Same as ReadJobFile(), for a job whose workers are `script`, or no script if it is empty. Adds to `overrides` what
// follows from the script: model.kind=external, if the job names no other model.kind.
absl::StatusOr<job::Job> ReadJobOfWorkers(const std::vector<std::string>& script, const std::string& job_file,
                                          std::vector<std::string>& overrides);

// Checks that some program can train the job's model.
//   kInvalidArgument  none can: a script would have to bring the model, and there is none
absl::Status CheckWorkers(const std::vector<std::string>& script, const job::Job& job);

// Keeps `script`, if there is one, in the run folder, so that the run can be resumed.
//   kInvalidArgument  a word of the command is not UTF-8
//   kUnavailable      the system refused
absl::Status KeepScript(const std::vector<std::string>& script, const std::filesystem::path& run);
// Returns the script that was kept; empty if there is none.
std::vector<std::string> KeptScript(const std::filesystem::path& run);

// Returns the environment of a script, as NAME=VALUE, for the arguments that the worker's program would get.
std::vector<std::string> EnvironmentOf(const std::vector<std::string>& worker_arguments);

}  // namespace slackline::cli
