// The next time of something that is done once in a period.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace slackline {

// Returns the first time after `due`, in whole periods from it, that is not before `now`. Times that passed while the
// last one took long are left out, and the later ones stay where they are. Requires: period > 0.
inline absl::Time NextDue(absl::Time due, absl::Duration period, absl::Time now) {
  const absl::Time next = due + period;
  if (next >= now) return next;
  const absl::Duration late = (now - next) % period;
  return late == absl::ZeroDuration() ? now : now + (period - late);
}

}  // namespace slackline
