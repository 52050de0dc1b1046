// Asks the installed NVIDIA libraries for the GPUs, the driver's version and NCCL's version.
#pragma once

#include <filesystem>

#include "cli/doctor/facts.h"

namespace slackline::cli::doctor {

// Returns nothing if no driver is loaded. `root` is the folder that has proc: "/", except in tests.
GpuFacts ProbeGpu(const std::filesystem::path& root);

}  // namespace slackline::cli::doctor
