// The timeouts that a job sets.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "common/time/timeouts.h"
#include "job.pb.h"

namespace slackline {

// Heartbeats per second that workers send together at most, if the job does not set their period. At the default period
// 750 workers send as many.
inline constexpr uint32_t kHeartbeatsPerSecond = 2'500;

// Returns timeouts.heartbeat_ms, or if it is not set, its default for the number of workers.
inline uint32_t HeartbeatMsOf(const job::Job& job) {
  if (job.timeouts().has_heartbeat_ms()) return job.timeouts().heartbeat_ms();
  const uint64_t apart = uint64_t{job.cluster().workers()} * 1000 / kHeartbeatsPerSecond;
  return std::max(job.timeouts().heartbeat_ms(), static_cast<uint32_t>(apart));
}

inline Timeouts TimeoutsOf(const job::Job& job) {
  return {.heartbeat = absl::Milliseconds(HeartbeatMsOf(job)),
          .stall = absl::Milliseconds(job.timeouts().stall_ms()),
          .startup = absl::Milliseconds(job.timeouts().startup_ms()),
          .task_lease = absl::Seconds(job.local().lease_s())};
}

}  // namespace slackline
