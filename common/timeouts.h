// The one hierarchy of waits: all of them follow from T, the time between heartbeats.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace slackline {

struct Timeouts {
  absl::Duration heartbeat = absl::Milliseconds(300);  // T
  absl::Duration stall = absl::Seconds(60);
  absl::Duration startup = absl::Seconds(120);
  // With local.lease_s: from when it got its task, a worker may be out of reach for so long.
  absl::Duration task_lease = absl::ZeroDuration();

  absl::Duration lease() const { return 2 * heartbeat; }
  absl::Duration server_dead() const { return 3 * heartbeat; }
  absl::Duration failover() const { return 6 * heartbeat; }
  absl::Duration worker_dead() const { return 16 * heartbeat; }
  // How long a worker tries to reach others.
  absl::Duration out_of_reach() const { return std::max(worker_dead(), task_lease); }
  // Silence at a gate that a notice must break.
  absl::Duration notice() const { return 3 * heartbeat; }
};

}  // namespace slackline
