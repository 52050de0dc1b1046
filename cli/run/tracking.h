// The trackers of a job (output.trackers): `slackline track` writes the run's figures for them when the run has ended.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/base/signals.h"
#include "cli/run/run_folder.h"
#include "job.pb.h"

namespace slackline::cli {

// Checks that Python has the packages of the job's trackers. `script` is that of CommandOf(): its interpreter counts,
// or that of `slackline track` if it is empty.
//   kFailedPrecondition  a package or the interpreter is missing
absl::Status CheckTrackers(const job::Job& job, const std::vector<std::string>& script);

// Runs `slackline track` for a run that has ended, and logs what it says. A failure is a warning. A stop signal ends
// the wait. The files are in the working directory, the output is in logs/track.log of the run folder.
void TrackRun(const job::Job& job, const std::vector<std::string>& script, const RunFolder& folder,
              SignalQueue& signals);

}  // namespace slackline::cli
