// `slackline credentials`: makes the files that the `security` section of a job names.
#pragma once

#include "cli/base/command.h"

namespace slackline::cli {

AddedCommand AddCredentials(CLI::App& app, const char* program);

}  // namespace slackline::cli
