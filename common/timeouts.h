// The one hierarchy of waits: all of them follow from T, the time between heartbeats.
#pragma once

#include "absl/time/time.h"

namespace slackline {

struct Timeouts {
  absl::Duration heartbeat = absl::Milliseconds(300);  // T
  absl::Duration stall = absl::Seconds(60);
  absl::Duration startup = absl::Seconds(120);

  absl::Duration lease() const { return 2 * heartbeat; }
  absl::Duration server_dead() const { return 3 * heartbeat; }
  absl::Duration failover() const { return 6 * heartbeat; }
  absl::Duration worker_dead() const { return 16 * heartbeat; }
  // Silence at a gate that a notice must break.
  absl::Duration notice() const { return 3 * heartbeat; }
};

}  // namespace slackline
