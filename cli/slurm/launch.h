// `slackline slurm run`: the whole run inside an allocation, from its batch script.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/script.h"

namespace slackline::cli::slurm {

// A supervisor has what an operator at a terminal has not: it starts again what dies.
inline constexpr uint32_t kWorkerRestarts = 10;

struct LaunchOptions {
  // As the user called this program.
  std::string program = "slackline";
  std::string job_file;
  std::vector<std::string> overrides;
  // Empty: as the job says, or runs/NAME-slurm-JOBID.
  std::string run_folder;
  // Go on with the run in the folder, from its newest checkpoint that is whole.
  bool resume = false;
  // Of each node, as AddressOfNode() has it.
  std::string interface;
  // So long before the end of the job's time the run is saved and the job requeued.
  absl::Duration stop_before = absl::Seconds(120);
  bool requeue = true;
  // The workers. Of a run that goes on: none for those that it had.
  ScriptOptions script = {};
};

// Returns the exit code.
int Launch(const LaunchOptions& options);

}  // namespace slackline::cli::slurm
