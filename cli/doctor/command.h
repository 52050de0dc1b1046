// `slackline doctor` on the command line.
#pragma once

#include "cli/base/command.h"

namespace slackline::cli::doctor {

AddedCommand AddDoctor(CLI::App& app, const char* program);

}  // namespace slackline::cli::doctor
