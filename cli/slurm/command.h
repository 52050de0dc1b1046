// `slackline slurm ...` and `slackline placement` on the command line.
#pragma once

#include "cli/base/command.h"

namespace slackline::cli::slurm {

AddedCommand AddSlurm(CLI::App& app, const char* program);
AddedCommand AddPlacement(CLI::App& app, const char* program);

}  // namespace slackline::cli::slurm
