// Names of job states for people and programs: in the status, summary.json and metrics.
#pragma once

#include <string>

#include "scheduler.pb.h"

namespace slackline::scheduler {

// Returns, for example, "training".
inline std::string NameOf(wire::JobState state) {
  switch (state) {
    case wire::JOB_STARTING:
      return "starting";
    case wire::JOB_TRAINING:
      return "training";
    case wire::JOB_DONE:
      return "done";
    case wire::JOB_FAILED:
      return "failed";
    case wire::JOB_STOPPED:
      return "stopped";
    default:
      return "unknown";
  }
}

}  // namespace slackline::scheduler
