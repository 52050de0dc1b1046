// `slackline train`, `launch` and `resume`: a whole run on this machine.
#pragma once

#include <string>
#include <vector>

#include "cli/base/command.h"
#include "job.pb.h"

namespace slackline::cli {

// Checks whether a run of the job can start on this machine. `script` comes from CommandOf(); empty for none. Logs why
// it cannot. Returns the exit code, which is kExitDone if it can.
int CheckStart(const std::vector<std::string>& script, const job::Job& job);

AddedCommand AddTrain(CLI::App& app, const char* program);
AddedCommand AddLaunch(CLI::App& app, const char* program);
AddedCommand AddResume(CLI::App& app, const char* program);

}  // namespace slackline::cli
