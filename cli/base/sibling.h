// Finds Slackline's programs in the folder of this program. Become() replaces this process with a program.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::cli {

// Programs for LibTorch, which may be missing: a wheel leaves them to slackline[worker].
inline constexpr char kWorkerProgram[] = "slackline-worker";
// A wheel has a simulator without LibTorch, too, which has the other name.
inline constexpr char kTorchSimulator[] = "slackline-simulator-torch", kSimulator[] = "slackline-simulator";

// Returns the path of the program `name` in the folder of this program.
//   kNotFound            it is not there, or may not be run; says how to get it
//   kFailedPrecondition  its LibTorch is missing or has another version (CheckLibTorch())
absl::StatusOr<std::filesystem::path> Sibling(const std::string& name);

// Returns the folder of this program if it has all of these programs.
//   errors of Sibling(); kNotFound names all programs that are missing
absl::StatusOr<std::filesystem::path> FolderWith(const std::vector<std::string>& names);

// Replaces this process with the program `path` with these arguments; returns only on failure.
absl::Status Become(const std::filesystem::path& path, const std::vector<std::string>& arguments);

}  // namespace slackline::cli
