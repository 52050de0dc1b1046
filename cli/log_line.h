// Lines that processes have logged, for people.
#pragma once

#include <string>

namespace slackline::cli {

// A line of JSON (output.log_format) as the text that it stands for: "TIME PROCESS LEVEL: MESSAGE". Others as they are.
std::string PlainLogLine(const std::string& line);

}  // namespace slackline::cli
