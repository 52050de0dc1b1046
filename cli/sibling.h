// Programs of Slackline that lie beside this one, and stand in for it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::cli {

// Where `name` lies beside this program.
//   kNotFound  it is not there, or may not be run
absl::StatusOr<std::filesystem::path> Sibling(const std::string& name);

// Becomes the program `path` with these arguments; returns only where that fails.
absl::Status Become(const std::filesystem::path& path, const std::vector<std::string>& arguments);

}  // namespace slackline::cli
