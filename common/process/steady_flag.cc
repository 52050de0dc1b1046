#include "common/process/steady_flag.h"

#include <algorithm>
#include <utility>

namespace slackline {
namespace {

// The standard's waits overflow beyond some centuries.
constexpr absl::Duration kLongest = absl::Hours(24 * 365);

}  // namespace

void SteadyFlag::Raise() {
  const std::lock_guard<std::mutex> lock(mutex_);
  raised_ = true;
  changed_.notify_all();
}

bool SteadyFlag::Await(absl::Duration timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, absl::ToChronoNanoseconds(std::min(timeout, kLongest)), [this] { return raised_; });
}

bool SteadyFlag::Take(absl::Duration timeout) {
  Await(timeout);
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(raised_, false);
}

}  // namespace slackline
