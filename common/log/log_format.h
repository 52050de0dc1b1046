// The format of this process's log (common/log/logging.h). Call these functions at the beginning of main().
#pragma once

#include <string>

namespace slackline::log {

// Replaces Initialise() in a command that a person runs: a line is "slackline: TEXT".
void InitialiseCommand(const std::string& command);

// Makes each later line a JSON object: time (RFC 3339, with milliseconds and zone), level, process, job, message. Call
// it after Initialise() or InitialiseCommand(), before other threads log.
void WriteJson(const std::string& job);

}  // namespace slackline::log
