// `slackline evaluate`: measures the quality of weights on a job's images.
#pragma once

#include "cli/base/command.h"

namespace slackline::cli {

AddedCommand AddEvaluate(CLI::App& app, const char* program);

}  // namespace slackline::cli
