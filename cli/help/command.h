// `slackline help` and `slackline completion` on the command line.
#pragma once

#include "cli/base/command.h"

namespace slackline::cli::help {

AddedCommand AddHelp(CLI::App& app, const char* program);
AddedCommand AddCompletion(CLI::App& app, const char* program);

}  // namespace slackline::cli::help
