// `slackline slurm run`: a whole run inside an allocation, called by the batch script.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/run/script.h"

namespace slackline::cli::slurm {

// Default of cluster.worker_restarts_max under SLURM: no operator at a terminal is there to restart crashed workers.
inline constexpr uint32_t kWorkerRestarts = 10;

struct LaunchOptions {
  // Name by which the user called this program.
  std::string program = "slackline";
  std::string job_file;
  std::vector<std::string> overrides;
  // Path of the run folder. Empty: as the job says, or runs/NAME-slurm-JOBID.
  std::string run_folder;
  // True to resume the run in the folder, from its newest checkpoint that is whole.
  bool resume = false;
  // Network interface of each node, as for AddressOfNode().
  std::string interface;
  // Time before the end of the job's time limit at which the run is saved and the job is requeued.
  absl::Duration stop_before = absl::Seconds(120);
  bool requeue = true;
  // Script that replaces the workers' program. Empty for a resumed run: the workers that it had.
  ScriptOptions script = {};
  // Options for the srun that starts a process on each node.
  std::vector<std::string> srun = {};
};

// Runs the job. Returns the exit code.
int Launch(const LaunchOptions& options);

}  // namespace slackline::cli::slurm
