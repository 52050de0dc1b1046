// Finds Slackline's programs in the folder of this program. Become() replaces this process with a program.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::cli {

// Returns the path of the program `name` in the folder of this program.
//   kNotFound  it is not there, or may not be run
absl::StatusOr<std::filesystem::path> Sibling(const std::string& name);

// Replaces this process with the program `path` with these arguments; returns only on failure.
absl::Status Become(const std::filesystem::path& path, const std::vector<std::string>& arguments);

}  // namespace slackline::cli
