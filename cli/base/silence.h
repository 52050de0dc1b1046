// Silence of a scheduler: how long it has lasted, and how long it may last.
#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "common/job/job_timeouts.h"
#include "job.pb.h"

namespace slackline::cli {

// Silence after which a scheduler that has answered before counts as hung: 16 T, as for any other process, but at most
// half of the time for which workers wait for another one, and at least 5 s, so that it can be asked more than once.
inline absl::Duration SchedulerSilenceMax(const job::Job& job) {
  constexpr absl::Duration kLeast = absl::Seconds(5);
  const absl::Duration most = absl::Seconds(job.durability().scheduler_return_s()) / 2;
  return std::max(kLeast, std::min(most, TimeoutsOf(job).worker_dead()));
}

// Counts silence between looks, so that time in which this process itself slept counts for little.
//
// Thread-safety: none.
class SchedulerSilence {
 public:
  // Starts anew for a scheduler that was just started or restarted, and has not answered yet.
  void Begin() { *this = {}; }
  void Look(bool answered, absl::Time now) {
    constexpr absl::Duration kGapMax = absl::Seconds(3);
    const absl::Duration gap = std::clamp(now - look_, absl::ZeroDuration(), kGapMax);
    lasted_ = answered ? absl::ZeroDuration() : lasted_ + gap;
    heard_ = heard_ || answered;
    look_ = now;
  }
  // Time since the scheduler last answered; zero if it never has.
  absl::Duration lasted() const { return heard_ ? lasted_ : absl::ZeroDuration(); }

 private:
  bool heard_ = false;
  absl::Time look_ = absl::InfiniteFuture();
  absl::Duration lasted_;
};

}  // namespace slackline::cli
