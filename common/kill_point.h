// Places where a test can have the process killed, to see what others make of what is left.
//
// They are in every build: what users run is what is tested. The places are between two steps that must not be taken
// for one: before and after what is on disk becomes true, before and after what was applied is answered.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace slackline::kill_point {

// Thread-safety: Arm() comes before other threads; Passed() is safe.

// `what` is POINT or POINT:N: the process kills itself with SIGKILL when it comes to the point for the Nth time (the
// first). An empty text arms nothing.
//   kInvalidArgument  no such text
absl::Status Arm(const std::string& what);

// Does nothing in a process that is not armed.
void Passed(const char* point);

}  // namespace slackline::kill_point
