// Exit codes, and the error message with which a command ends.
#pragma once

#include "absl/status/status.h"

namespace slackline::cli {

// Exit codes of all programs.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitWrongUse = 2;

// Logs the error and returns the exit code: kExitWrongUse for kNotFound, kInvalidArgument and kAlreadyExists, else
// kExitFailed.
int Complain(const absl::Status& status);
// Logs the error and returns kExitFailed whatever its code is, for example because files of Slackline itself are
// missing.
int Fail(const absl::Status& status);
// Logs the error and returns kExitWrongUse whatever its code is, for example for a named file that cannot be used.
int ComplainOfWrongUse(const absl::Status& status);

}  // namespace slackline::cli
