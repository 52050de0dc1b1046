// Command line of slackline-scheduler.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace slackline::scheduler {

// Exit code of a wrong command line or job file.
inline constexpr int kWrongUse = 2;

struct Options {
  std::string job_file;
  // Settings that override the job file, each "KEY=VALUE".
  std::vector<std::string> overrides;
  // HOST:PORT to listen on; empty: network.listen, and a port of network.ports or one that the system chooses.
  std::string listen;
  // Run folder; empty: the job file's, or a new one under runs/.
  std::string run_folder;
  // File to write host:port to once the scheduler listens, besides the run folder's scheduler.address; empty: none.
  std::string address_file;
  // True to continue the run in the run folder, whose scheduler has died.
  bool resume = false;
  // Checkpoint from which to continue the run in the run folder, with other servers and workers; empty: none.
  std::string from_checkpoint;
  // True if no supervisor polls for the result, so the scheduler exits without waiting.
  bool unwatched = false;
};

// Returns the options; nullopt if the program is to end at once (--help, --version, wrong use): `exit_code` says how.
std::optional<Options> ParseOptions(int argc, char** argv, int& exit_code);

}  // namespace slackline::scheduler
