// All timeouts, in one hierarchy. Most follow from T, the time between heartbeats.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace slackline {

struct Timeouts {
  absl::Duration heartbeat = absl::Milliseconds(300);  // the T of this hierarchy
  absl::Duration stall = absl::Seconds(60);
  absl::Duration startup = absl::Seconds(120);
  // Longest time, from the start of its task, for which a worker may be out of reach, if local.lease_s is set.
  absl::Duration task_lease = absl::ZeroDuration();

  absl::Duration lease() const { return 2 * heartbeat; }
  absl::Duration server_dead() const { return 3 * heartbeat; }
  absl::Duration failover() const { return 6 * heartbeat; }
  absl::Duration worker_dead() const { return 16 * heartbeat; }
  // Returns the time for which a worker tries to reach others.
  absl::Duration out_of_reach() const { return std::max(worker_dead(), task_lease); }
  // Returns the longest silence toward a worker at a gate, where it waits for others. A server must send a notice by
  // then.
  absl::Duration notice() const { return 3 * heartbeat; }
};

}  // namespace slackline
