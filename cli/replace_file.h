// Small files that others read while they are written.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"

namespace slackline::cli {

// Readers see the old or the new one, never a part.
//   kUnavailable  it cannot be written
absl::Status ReplaceFile(const std::filesystem::path& path, const std::string& text);

}  // namespace slackline::cli
