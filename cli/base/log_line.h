// Lines that processes have logged, made readable for people.
#pragma once

#include <string>

namespace slackline::cli {

// Returns a line of JSON (output.log_format) as text: "TIME PROCESS LEVEL: MESSAGE". Returns other lines unchanged.
std::string PlainLogLine(const std::string& line);

}  // namespace slackline::cli
