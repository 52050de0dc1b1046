// Tries a folder that a run is to write to, with a file of its own that it removes.
#pragma once

#include <cstdint>
#include <string>

#include "cli/doctor/facts.h"

namespace slackline::cli::doctor {

struct DiskTrial {
  uint64_t megabytes = 32;
  // Of a small file that is replaced, as saved states are.
  uint32_t replacements = 20;
  // The trial writes no more once so long has passed.
  absl::Duration patience = absl::Seconds(10);
};

// `path` need not exist: its nearest parent is tried then, and nothing is made.
DiskFacts ProbeDisk(const std::string& purpose, const std::string& path, const DiskTrial& trial);

}  // namespace slackline::cli::doctor
