// Processes that `slackline train` has started in vain.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/run_folder.h"
#include "scheduler.pb.h"

namespace slackline::cli {

// Those of processes.json that have ended and that the scheduler knows nothing of.
std::vector<ProcessRecord> NotStarted(const std::filesystem::path& run, const wire::GetStatusReply& status);

// A line each, for people; `run` has their logs.
std::string RenderNotStarted(const std::filesystem::path& run, const std::vector<ProcessRecord>& processes);

// `status`, a JSON object, with a field `not_started` in the end.
std::string WithNotStarted(const std::string& status, const std::filesystem::path& run,
                           const std::vector<ProcessRecord>& processes);

}  // namespace slackline::cli
