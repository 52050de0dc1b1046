// `slackline prepare` on the command line.
#pragma once

#include "cli/base/command.h"

namespace slackline::cli::prepare {

AddedCommand AddPrepare(CLI::App& app, const char* program);

}  // namespace slackline::cli::prepare
