// `slackline servers add` and `slackline servers drain`: parameter servers join and leave a run while it trains.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/status.h"

namespace slackline::cli {

struct ServersOptions {
  StatusOptions run;
  uint32_t add = 0;
  std::vector<std::string> drain;
  // So long it is waited for; 0: not at all.
  absl::Duration wait = absl::Seconds(120);
};

// Prints, and returns the exit code: 0 once all shards are where they are to be, or are on their way where that is not
// waited for.
int ChangeServers(const ServersOptions& options);

}  // namespace slackline::cli
