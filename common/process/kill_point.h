// Kill points: places where a test can make the process kill itself, to check how others cope with the remains.
//
// Every build has them, so that users run what was tested. Each lies between two steps that must not be taken for one:
// before and after data on disk takes effect, before and after an applied change is answered.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace slackline::kill_point {

// Thread-safety: Arm() comes before other threads; Passed() is safe.

// Arms one kill point. `what` is POINT or POINT:N: the process kills itself with SIGKILL when it reaches the point for
// the Nth time (default: the first). An empty text arms nothing.
//   kInvalidArgument  `what` has another form
absl::Status Arm(const std::string& what);

// Marks a kill point in the code. Does nothing in a process that is not armed.
void Passed(const char* point);

}  // namespace slackline::kill_point
