// `slackline train`, `launch` and `resume`: a whole run on this machine.
#pragma once

#include "cli/base/command.h"

namespace slackline::cli {

AddedCommand AddTrain(CLI::App& app, const char* program);
AddedCommand AddLaunch(CLI::App& app, const char* program);
AddedCommand AddResume(CLI::App& app, const char* program);

}  // namespace slackline::cli
