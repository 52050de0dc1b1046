// `slackline slurm submit`: makes the run folder with a copy of the job file and a batch script in it, and submits the
// script with sbatch.
#pragma once

#include <string>
#include <vector>

#include "cli/run/script.h"

namespace slackline::cli::slurm {

struct SubmitOptions {
  std::string job_file;
  std::vector<std::string> overrides;
  // Path of the run folder. Empty: as the job says, or a new one under runs/.
  std::string run_folder;
  // True to resume the run in the folder.
  bool resume = false;
  std::string interface;
  double stop_before_s = 120;
  bool requeue = true;
  // Script that replaces the workers' program. Empty for a resumed run: the workers that it had.
  ScriptOptions script = {};
  // Options for the srun that starts a process on each node, passed on unchanged.
  std::vector<std::string> srun = {};
  // Options for sbatch, passed on unchanged.
  std::vector<std::string> sbatch;
  // True to print the batch script, and do nothing else.
  bool dry_run = false;
  // True to follow the job until it ends, as FollowJob() does.
  bool wait = false;
};

// Submits the job, and follows it if it is to wait. Returns the exit code.
int Submit(const SubmitOptions& options);

// Returns the number of the array's first task in options for sbatch; empty if they ask for no array.
std::string FirstTask(const std::vector<std::string>& sbatch);

// Returns the text of the batch script. `program` is the path of this program, `folder` the run folder.
std::string BatchScript(const SubmitOptions& options, const std::string& name, const std::string& program,
                        const std::string& folder);

}  // namespace slackline::cli::slurm
