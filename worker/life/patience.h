// Longest times for which a worker waits for others. Pure.
#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "common/time/timeouts.h"
#include "job.pb.h"

namespace slackline::worker {

// Returns the longest time that the job waits for the return of a server that crashed.
inline absl::Duration ServerReturn(const job::Durability& durability, const Timeouts& timeouts) {
  return absl::Seconds(durability.server_return_s()) + 2 * timeouts.worker_dead();
}

// Returns how long servers may keep silent. A server says something every 3 T. The bound lies well before the time at
// which the scheduler would call this worker stalled. While a server is away, the scheduler decides for how long.
inline absl::Duration SilenceMax(const Timeouts& timeouts, absl::Duration server_return) {
  return std::max({timeouts.out_of_reach(), timeouts.stall / 2, server_return});
}

}  // namespace slackline::worker
