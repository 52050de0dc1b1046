// The output of `--version` in every program.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace slackline {

// Returns "NAME 0.2.0 (commit, compiler, build type)".
std::string VersionText(absl::string_view program);

// Returns "0.2.0 (commit)".
std::string BuildName();

// Returns "0.2.0".
std::string VersionNumber();

}  // namespace slackline
