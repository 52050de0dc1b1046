#include "common/time/computing_watch.h"

#include <time.h>

#include <utility>

namespace slackline {

absl::Time ProcessTime::Now() const {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return absl::UnixEpoch() + absl::DurationFromTimespec(used);
}

bool ComputingWatch::Computed() {
  const absl::Time now = time_.Now(), used = processor_.Now();
  const absl::Duration passed = now - std::exchange(since_, now);
  return used - std::exchange(used_, used) >= kShareMin * passed;
}

}  // namespace slackline
