#include "common/time/clock.h"

#include <time.h>

#include <chrono>

namespace slackline {

absl::Time SteadyTime::Now() const {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

absl::Time ThreadTime::Now() const {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return absl::UnixEpoch() + absl::DurationFromTimespec(used);
}

}  // namespace slackline
