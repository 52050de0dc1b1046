// Scripts with which shells complete the words of `slackline` commands.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace CLI {
class App;
}

namespace slackline::cli::help {

// Returns the script for `shell`: bash, zsh or fish. Its commands, options and words are those of `app`, which the help
// shows, too; hidden options are left out.
std::string CompletionScript(const CLI::App& app, absl::string_view shell);

}  // namespace slackline::cli::help
