// The timeouts that a job sets.
#pragma once

#include "absl/time/time.h"
#include "common/time/timeouts.h"
#include "job.pb.h"

namespace slackline {

inline Timeouts TimeoutsOf(const job::Job& job) {
  return {.heartbeat = absl::Milliseconds(job.timeouts().heartbeat_ms()),
          .stall = absl::Milliseconds(job.timeouts().stall_ms()),
          .startup = absl::Milliseconds(job.timeouts().startup_ms()),
          .task_lease = absl::Seconds(job.local().lease_s())};
}

}  // namespace slackline
