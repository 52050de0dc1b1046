// Processes that `slackline train` has started and that ended before they joined the run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/run/run_folder.h"
#include "scheduler.pb.h"

namespace slackline::cli {

// Returns the servers and workers of processes.json that have ended with an error and that the scheduler does not know.
std::vector<ProcessRecord> NotStarted(const std::filesystem::path& run, const wire::GetStatusReply& status);

// Renders one line per process, for people. `run` is the folder with their logs.
std::string RenderNotStarted(const std::filesystem::path& run, const std::vector<ProcessRecord>& processes);

// Returns `status`, a JSON object, with a field `not_started` added at its end.
std::string WithNotStarted(const std::string& status, const std::filesystem::path& run,
                           const std::vector<ProcessRecord>& processes);

}  // namespace slackline::cli
