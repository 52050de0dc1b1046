// slackline-scheduler: the scheduler of one job.
#pragma once

namespace slackline::scheduler {

// Runs slackline-scheduler and returns its exit code. main() is elsewhere: this file is part of a library that tests
// link, too.
int RunProgram(int argc, char** argv);

}  // namespace slackline::scheduler
