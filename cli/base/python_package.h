// Commands that run a Python package of Slackline. The packages lie in ../share/slackline/python, relative to the
// folder of this program; a build folder has links there.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace slackline::cli {

// Returns the command that runs `package`; its options are to be appended. `python` is the interpreter: a path or a
// name on PATH. Empty: the one of the environment `venv` beside the packages, if that exists, else python3.
//   kInternal  this installation has no such package
//   errors of Sibling()
absl::StatusOr<std::vector<std::string>> PackageCommand(const std::string& package, const std::string& python);

}  // namespace slackline::cli
