// How this process writes its log (common/logging.h). For the beginning of main().
#pragma once

#include <string>

namespace slackline::log {

// As Initialise(), for a command that a person has called: a line is "slackline: TEXT".
void InitialiseCommand(const std::string& command);

// From now on a line is a JSON object: time (RFC 3339, with milliseconds and zone), level, process, job, message. Call
// after one of the above, before other threads log.
void WriteJson(const std::string& job);

}  // namespace slackline::log
