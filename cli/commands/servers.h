// `slackline servers add` and `slackline servers drain`: parameter servers join and leave a run while it trains.
#pragma once

#include "cli/base/command.h"

namespace slackline::cli {

AddedCommand AddServers(CLI::App& app, const char* program);

}  // namespace slackline::cli
