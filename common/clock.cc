#include "common/clock.h"

#include <chrono>

namespace slackline {

absl::Time SteadyTime::Now() const {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace slackline
