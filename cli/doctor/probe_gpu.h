// Which GPUs are here, and which libraries for them: asked of those libraries where they are installed.
#pragma once

#include <filesystem>

#include "cli/doctor/facts.h"

namespace slackline::cli::doctor {

GpuFacts ProbeGpu(const std::filesystem::path& root);

}  // namespace slackline::cli::doctor
