// Finds the GPUs of this machine and the libraries for them, by asking those libraries if they are installed.
#pragma once

#include <filesystem>

#include "cli/doctor/facts.h"

namespace slackline::cli::doctor {

GpuFacts ProbeGpu(const std::filesystem::path& root);

}  // namespace slackline::cli::doctor
