// The command line of slackline-scheduler.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace slackline::scheduler {

struct Options {
  std::string job_file;
  // "KEY=VALUE" each.
  std::vector<std::string> overrides;
  // HOST:PORT; empty for the job file's address and a port that the system chooses.
  std::string listen;
  // Empty for the job file's, or a new one under runs/.
  std::string run_folder;
  // Where to write host:port once the scheduler listens, beside the run folder's scheduler.address; empty for nowhere.
  std::string address_file;
  // Go on with the run in the run folder, whose scheduler has died.
  bool resume = false;
  // Go on with the run in the run folder from this checkpoint, with other servers and workers; empty: not so.
  std::string from_checkpoint;
  // Nobody will ask how the job has ended.
  bool unwatched = false;
};

// Absent when the program is to end at once (--help, --version, wrong use); `exit_code` says how.
std::optional<Options> ParseOptions(int argc, char** argv, int& exit_code);

}  // namespace slackline::scheduler
