// How a command ends.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace slackline::cli {

// Exit codes of all programs.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitWrongUse = 2;

// Says what is wrong, and returns the exit code: wrong use where what was named is not there or not allowed.
int Complain(const absl::Status& status);
// The same for what is wrong use whatever its code is: a file that was named and cannot be used.
int ComplainOfWrongUse(const absl::Status& status);

}  // namespace slackline::cli
