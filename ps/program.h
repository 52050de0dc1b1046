// slackline-ps: one parameter-server process.
#pragma once

namespace slackline::ps {

// Runs slackline-ps and returns its exit code. main() is elsewhere: this file is part of a library that tests link,
// too.
int RunProgram(int argc, char** argv);

}  // namespace slackline::ps
