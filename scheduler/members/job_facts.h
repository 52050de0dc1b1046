// Facts of the job that the controller passes to its parts.
#pragma once

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/time/timeouts.h"
#include "job.pb.h"
#include "scheduler.pb.h"
#include "scheduler/base/event_log.h"
#include "scheduler/members/membership.h"
#include "status.pb.h"

namespace slackline::scheduler {

inline bool HasEnded(wire::JobState state) {
  return state == wire::JOB_DONE || state == wire::JOB_FAILED || state == wire::JOB_STOPPED;
}

inline bool HasBackups(const job::Job& job) { return job.durability().mode() == job::Durability::REPLICATED; }

// Facts that stay.
struct FixedJobFacts {
  job::Job job;  // resolved
  JobId id;
  Timeouts timeouts;
  bool keeps_state = false;  // true if the scheduler's state outlives the process
};

// The job at the time of a call.
struct JobFacts {
  absl::Time now;
  wire::JobState state = wire::JOB_STARTING;
  Audience deaths = Audience::kPeople;  // audience of events about deaths

  bool training() const { return state == wire::JOB_TRAINING; }
  bool ended() const { return HasEnded(state); }
};

}  // namespace slackline::scheduler
