// What the kernel's control groups allow this process: SLURM, Kubernetes and Docker set limits by them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace slackline::cli::doctor {

struct GroupLimits {
  // The smallest of the group and those above it; nullopt: none.
  std::optional<uint64_t> memory_bytes;
  // Of the group with that limit.
  uint64_t memory_used_bytes = 0;
  std::optional<double> processor_threads;
};

// Versions 1 and 2. `root`: where proc and sys are found.
GroupLimits ReadGroupLimits(const std::filesystem::path& root);

}  // namespace slackline::cli::doctor
