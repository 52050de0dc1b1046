// `slackline servers add` and `slackline servers drain`: parameter servers join and leave a run while it trains.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/commands/status.h"

namespace slackline::cli {

struct ServersOptions {
  StatusOptions run;
  uint32_t add = 0;
  std::vector<std::string> drain;
  // Time to wait for the change; 0: does not wait.
  absl::Duration wait = absl::Seconds(120);
};

// Changes the servers of a run, prints, and returns the exit code: 0 once all shards are where they are to be; without
// waiting, 0 once the scheduler has accepted the change.
int ChangeServers(const ServersOptions& options);

}  // namespace slackline::cli
