// Commands of the service that keeps many jobs: service, submit, jobs, logs, cancel, rm. What they do with one job, for
// commands that take a run folder or a job's number.
#pragma once

#include <string>
#include <vector>

#include "cli/base/command.h"
#include "cli/service/service_folder.h"

namespace slackline::cli {

AddedCommand AddService(CLI::App& app, const char* program);
AddedCommand AddSubmit(CLI::App& app, const char* program);
AddedCommand AddJobs(CLI::App& app, const char* program);
AddedCommand AddLogs(CLI::App& app, const char* program);
AddedCommand AddCancel(CLI::App& app, const char* program);
AddedCommand AddRemove(CLI::App& app, const char* program);

// Stop or resume a job of a service, as `slackline stop` and `resume` do with a run. Return the exit code.
int StopJobOfService(const NamedJob& job, const std::string& reason);
int ResumeJobOfService(const NamedJob& job, const std::vector<std::string>& overrides);

}  // namespace slackline::cli
