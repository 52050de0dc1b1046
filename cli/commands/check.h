// `slackline check`: checks a job file without running it.
#pragma once

#include "cli/base/command.h"

namespace slackline::cli {

AddedCommand AddCheck(CLI::App& app, const char* program);

}  // namespace slackline::cli
