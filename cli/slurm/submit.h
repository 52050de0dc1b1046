// `slackline slurm submit`: makes the run folder with a batch script and the job's credentials in it, and gives the
// script to sbatch.
#pragma once

#include <string>
#include <vector>

#include "cli/script.h"

namespace slackline::cli::slurm {

struct SubmitOptions {
  std::string job_file;
  std::vector<std::string> overrides;
  // Empty: as the job says, or a new one under runs/.
  std::string run_folder;
  // Go on with the run in the folder.
  bool resume = false;
  std::string interface;
  double stop_before_s = 120;
  bool requeue = true;
  // The workers. Of a run that goes on: none for those that it had.
  ScriptOptions script = {};
  // For sbatch, as they are.
  std::vector<std::string> sbatch;
  // Show the script, and do nothing.
  bool dry_run = false;
};

// Returns the exit code.
int Submit(const SubmitOptions& options);

// The script. `program`: this program. `folder`: of the run.
std::string BatchScript(const SubmitOptions& options, const std::string& name, const std::string& program,
                        const std::string& folder);

}  // namespace slackline::cli::slurm
