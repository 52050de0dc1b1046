// `slackline stop`: ends a run in good order, from any terminal.
#pragma once

#include "cli/base/command.h"

namespace slackline::cli {

AddedCommand AddStop(CLI::App& app, const char* program);

}  // namespace slackline::cli
