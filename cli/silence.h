// How long a scheduler has said nothing, and for how long that may be.
#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "common/timeouts.h"
#include "job.pb.h"

namespace slackline::cli {

// A scheduler that has answered before and is silent for so long hangs: 16 T, as for any other process, but time enough
// to ask it more than once.
inline absl::Duration SchedulerSilenceMax(const job::Job& job) {
  constexpr absl::Duration kLeast = absl::Seconds(5);
  const Timeouts timeouts = {.heartbeat = absl::Milliseconds(job.timeouts().heartbeat_ms())};
  return std::max(kLeast, timeouts.worker_dead());
}

// Counts silence by looks, so that time in which this process itself slept counts for little.
//
// Thread-safety: none.
class Silence {
 public:
  // It was started (again): has not answered yet.
  void Begin() { *this = {}; }
  void Look(bool answered, absl::Time now) {
    constexpr absl::Duration kGapMax = absl::Seconds(3);
    const absl::Duration gap = std::clamp(now - look_, absl::ZeroDuration(), kGapMax);
    lasted_ = answered ? absl::ZeroDuration() : lasted_ + gap;
    heard_ = heard_ || answered;
    look_ = now;
  }
  // Since it last answered; nothing where it never has.
  absl::Duration lasted() const { return heard_ ? lasted_ : absl::ZeroDuration(); }

 private:
  bool heard_ = false;
  absl::Time look_ = absl::InfiniteFuture();
  absl::Duration lasted_;
};

}  // namespace slackline::cli
