// Places where a test can have the process killed, to see what others make of what is left.
//
// Only in builds with SLACKLINE_KILL_POINTS (the presets for tests); elsewhere SLACKLINE_KILL_POINT() is nothing. The
// places are between two steps that must not be taken for one: before and after what is on disk becomes true, before
// and after what was applied is answered.
#pragma once

#include <string>

#include "absl/status/status.h"

#ifdef SLACKLINE_KILL_POINTS
#define SLACKLINE_KILL_POINT(name) ::slackline::kill_point::Passed(name)
#else
#define SLACKLINE_KILL_POINT(name) static_cast<void>(0)
#endif

namespace slackline::kill_point {

// Thread-safety: Arm() comes before other threads; Passed() is safe.

// POINT or POINT:N: the process kills itself with SIGKILL when it comes to the point for the Nth time (the first).
//   kInvalidArgument  no such text
absl::Status Arm(const std::string& what);
void Passed(const char* point);

}  // namespace slackline::kill_point
