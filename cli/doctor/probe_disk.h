// Tries a folder that a run will write to, with files of its own, which it removes.
#pragma once

#include <cstdint>
#include <string>

#include "cli/doctor/facts.h"

namespace slackline::cli::doctor {

struct DiskTrial {
  uint64_t megabytes = 32;
  // Number of times that a small file is replaced, as saved states are.
  uint32_t replacements = 20;
  // Time after which the trial writes no more.
  absl::Duration patience = absl::Seconds(10);
};

// Tries the folder `path`. If it does not exist, tries its nearest parent that does, and makes no folder at `path`.
DiskFacts ProbeDisk(const std::string& purpose, const std::string& path, const DiskTrial& trial);

}  // namespace slackline::cli::doctor
