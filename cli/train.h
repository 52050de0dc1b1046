// `slackline train`: the whole run from one job file.
#pragma once

#include <string>
#include <vector>

#include "cli/complain.h"

namespace slackline::cli {

struct TrainOptions {
  // As the user called this program; for the commands that are proposed at the end.
  std::string program = "slackline";
  std::string job_file;
  std::vector<std::string> overrides;
  // Empty: as the job says.
  std::string run_folder;
  bool quiet = false;
  // The workers' program with its arguments, where they are scripts.
  std::vector<std::string> script = {};
};

struct ResumeOptions {
  std::string program = "slackline";
  std::string run_folder;
  // Name or number of one in the run's folder of checkpoints, or a path (with a / in it); empty: the newest that is
  // whole.
  std::string checkpoint;
  std::vector<std::string> overrides;
  bool quiet = false;
  // As in TrainOptions.
  std::vector<std::string> script = {};
};

// Goes on with a run that has ended, from a checkpoint. Returns the exit code.
int Resume(const ResumeOptions& options);

// Starts the cluster, shows its progress, ends it, and reports. Returns the exit code.
int Train(const TrainOptions& options);

}  // namespace slackline::cli
