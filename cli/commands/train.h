// `slackline train`: a whole run from one job file; and `slackline resume`.
#pragma once

#include <string>
#include <vector>

#include "cli/base/complain.h"

namespace slackline::cli {

struct TrainOptions {
  // Name by which the user called this program; for the commands that are proposed at the end.
  std::string program = "slackline";
  std::string job_file;
  std::vector<std::string> overrides;
  // Path of the run folder. Empty: as the job says.
  std::string run_folder;
  bool quiet = false;
  // Command that starts a worker, if the workers are scripts. Empty: the workers' program.
  std::vector<std::string> script = {};
};

struct ResumeOptions {
  std::string program = "slackline";
  std::string run_folder;
  // Checkpoint to resume from: its name or number in the run's folder of checkpoints, "best", or a path (with a / in
  // it). Empty: the newest that is whole.
  std::string checkpoint;
  std::vector<std::string> overrides;
  bool quiet = false;
  // Same as TrainOptions::script.
  std::vector<std::string> script = {};
};

// Continues a run that has ended, from a checkpoint. Returns the exit code.
int Resume(const ResumeOptions& options);

// Starts the cluster, shows its progress, ends it, and reports. Returns the exit code.
int Train(const TrainOptions& options);

}  // namespace slackline::cli
