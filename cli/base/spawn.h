// Starts a program in a new process.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::cli {

// Starts `command`, a path and arguments, with the file `input` as standard input, and with `log` as standard output
// and standard error. The child ignores none of SIGINT, SIGTERM, SIGCHLD and SIGPIPE, and blocks no signal. Before
// that, the child calls `prepare`, in which only calls are allowed that are safe after fork(). If `prepare` returns
// false, the start has failed with errno as the reason. `environment`: NAME=VALUE; empty: that of this process. Returns
// once the program runs.
//   kNotFound     no such program or folder
//   kUnavailable  the system refused
absl::StatusOr<pid_t> Spawn(std::vector<std::string> command, int log, const std::function<bool()>& prepare,
                            std::vector<std::string> environment = {}, const std::string& input = "/dev/null");

// Returns the error for a system call that failed with `error`: kNotFound for a missing file or folder, else
// kUnavailable.
absl::Status SystemError(const std::string& what, int error);

}  // namespace slackline::cli
