// `slackline slurm wait`: shows the output of a run's SLURM job, and waits for its end.
#pragma once

#include <filesystem>
#include <string>

#include "cli/base/signals.h"

namespace slackline::cli::slurm {

// Follows the SLURM job as which the run was last submitted. SIGINT saves the run and ends it; a second one ends it at
// once. SIGTERM and SIGHUP end this process, and the job goes on. `from_start`: shows all of the job's output, and not
// only what comes from now on. Returns the exit code: kExitDone if the run is done.
//
// While it waits, submit/queue in the run folder has the job's state in SLURM.
int FollowJob(const std::filesystem::path& run, bool from_start, SignalQueue& signals);

// Follows the job of the run in `run_folder`.
int Wait(const std::string& run_folder);

}  // namespace slackline::cli::slurm
