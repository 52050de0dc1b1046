// Looks at this machine: what the kernel says of it, without changing anything.
#pragma once

#include <filesystem>

#include "cli/doctor/facts.h"

namespace slackline::cli::doctor {

// `root`: where proc, sys and the like are found; "/" but for tests.
SystemFacts ProbeSystem(const std::filesystem::path& root);

// Its parts.
MemoryFacts ProbeMemory(const std::filesystem::path& root);
ProcessorFacts ProbeProcessor(const std::filesystem::path& root);
std::string ProbeContainer(const std::filesystem::path& root);

}  // namespace slackline::cli::doctor
