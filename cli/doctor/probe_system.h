// Reads what the kernel reports about this machine, without changing anything.
#pragma once

#include <filesystem>

#include "cli/doctor/facts.h"

namespace slackline::cli::doctor {

// `root` is the folder that has proc, sys and the like; "/" except in tests.
SystemFacts ProbeSystem(const std::filesystem::path& root);

// Probes for parts of SystemFacts.
MemoryFacts ProbeMemory(const std::filesystem::path& root);
ProcessorFacts ProbeProcessor(const std::filesystem::path& root);
std::string ProbeContainer(const std::filesystem::path& root);

}  // namespace slackline::cli::doctor
