// Limits that the kernel's control groups set for this process: SLURM, Kubernetes and Docker use them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace slackline::cli::doctor {

struct GroupLimits {
  // Smallest memory limit of the process's group and the groups above it; nullopt: no limit.
  std::optional<uint64_t> memory_bytes;
  // Memory that the group with that limit uses.
  uint64_t memory_used_bytes = 0;
  std::optional<double> processor_threads;
};

// Reads control groups of versions 1 and 2. `root` is the folder that has proc and sys.
GroupLimits ReadGroupLimits(const std::filesystem::path& root);

}  // namespace slackline::cli::doctor
