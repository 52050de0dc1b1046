// Commands that another program does, its help included: `slackline experiment`, `compare`, `plan`, `trace` and
// `track`, each the Python package of its name, and `simulate`.
#pragma once

#include "cli/base/command.h"

namespace slackline::cli {

AddedCommand AddExperiment(CLI::App& app, const char* program);
AddedCommand AddCompare(CLI::App& app, const char* program);
AddedCommand AddPlan(CLI::App& app, const char* program);
AddedCommand AddTrace(CLI::App& app, const char* program);
AddedCommand AddTrack(CLI::App& app, const char* program);
AddedCommand AddSimulate(CLI::App& app, const char* program);

}  // namespace slackline::cli
