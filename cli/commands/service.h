// Commands of the service that keeps many jobs: service, submit, jobs, logs, cancel, rm. What they do with one job, for
// commands that take a run folder or a job's number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/base/command.h"

namespace slackline::cli {

AddedCommand AddService(CLI::App& app, const char* program);
AddedCommand AddSubmit(CLI::App& app, const char* program);
AddedCommand AddJobs(CLI::App& app, const char* program);
AddedCommand AddLogs(CLI::App& app, const char* program);
AddedCommand AddCancel(CLI::App& app, const char* program);
AddedCommand AddRemove(CLI::App& app, const char* program);

// Stop or resume a job of the service that this user started last, as `slackline stop` and `resume` do with a run.
// Return the exit code.
int StopJobOfService(uint64_t id, const std::string& reason);
int ResumeJobOfService(uint64_t id, const std::vector<std::string>& overrides);

}  // namespace slackline::cli
