// Estimates of when workers push next, and the decision how long a step waits for them.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "absl/time/time.h"

namespace slackline::ps {

// A push that may come. Several of a worker, at different times, share its samples.
struct LikelyPush {
  absl::Time at;
  double samples = 1;
};

// Times that a worker took from a pull to the push of the gradient computed from it.
//
// Thread-safety: none.
class TurnTimes {
 public:
  // Number of latest times that count. Each of them is as likely as the others, and as a time that lies as far beyond
  // the longest one as that lies beyond the median: a next time is longer than all of n before in one case of n + 1.
  static constexpr size_t kKept = 8;

  void Add(absl::Duration time);
  // Adds to `likely` the next push of the worker, which has pulled at `pulled` and not pushed by `now`: one for each of
  // the times that would still bring it, with an equal part of `samples`. Adds nothing if the push is
  // later than all of them.
  void AddLikely(absl::Time pulled, absl::Time now, double samples, std::vector<LikelyPush>& likely) const;

 private:
  std::deque<absl::Duration> times_;  // oldest first
  absl::Duration tail_;
};

// Samples of a push that misses its step count so many times: its worker also begins the next one late. Pushes that
// come when the step has taken more than kSoon times as long as now count once: their workers miss steps in any case.
// Both numbers were chosen in simulated clusters (docs/adr/0087-grace-maximizes-samples-per-second.md).
inline constexpr double kMissedCounts = 3;
inline constexpr double kSoon = 1.5;

// Facts and estimates about an open step.
struct StepOutlook {
  absl::Time begun;                            // time of the previous step
  absl::Time latest = absl::InfiniteFuture();  // time at which the step is applied in any case
  double samples = 0;                          // samples that are there
  std::vector<LikelyPush> likely = {};         // pushes that may come
};

// Returns the time until which the step should wait: that of a likely push, if the samples per second are then larger,
// on average, than they were at any time before; else `now`. Samples of likely pushes count as said above. `best`:
// largest samples per second so far, which is updated. If each push has as many samples, a step takes at most 1 +
// kMissedCounts x (live workers / quorum - 1) times as long as until its quorum was there.
absl::Time BestEndOfStep(StepOutlook step, absl::Time now, double& best);

}  // namespace slackline::ps
