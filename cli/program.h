// The `slackline` command.
#pragma once

namespace slackline::cli {

// Runs the `slackline` command and returns its exit code. main() is elsewhere: this file is part of a library that
// tests link, too.
int RunProgram(int argc, char** argv);

}  // namespace slackline::cli
