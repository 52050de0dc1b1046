// What `--version` of every program prints.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace slackline {

// "NAME 0.1.0 (commit, compiler, build type)".
std::string VersionText(absl::string_view program);

// "0.1.0".
std::string VersionNumber();

}  // namespace slackline
