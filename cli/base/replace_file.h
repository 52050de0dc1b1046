// Replaces small files that other processes read at the same time.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"

namespace slackline::cli {

// Replaces the file. Readers see the old or the new content, never a part.
//   kUnavailable  the file cannot be written
absl::Status ReplaceFile(const std::filesystem::path& path, const std::string& text);

}  // namespace slackline::cli
