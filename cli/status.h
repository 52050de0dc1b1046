// `slackline status`: how a run is doing, or how it ended.
#pragma once

#include <string>

namespace slackline::cli {

// `target` is host:port or a run folder. Prints, and returns the exit code: 0 too for a run that ended with a report.
int Status(const std::string& target);

}  // namespace slackline::cli
