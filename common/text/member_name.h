// Names of workers and servers, which people write on a command line and read in logs, metrics and names of files.
#pragma once

#include <string>

namespace slackline {

// Returns an empty text if `name` is allowed, otherwise the mistake in it. For CLI11's check().
std::string MemberNameMistake(const std::string& name);

}  // namespace slackline
