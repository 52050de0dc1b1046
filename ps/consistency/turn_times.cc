#include "ps/consistency/turn_times.h"

#include <algorithm>
#include <utility>

namespace slackline::ps {

void TurnTimes::Add(absl::Duration time) {
  times_.push_back(time);
  if (times_.size() > kKept) times_.pop_front();
  std::vector<absl::Duration> sorted(times_.begin(), times_.end());
  std::sort(sorted.begin(), sorted.end());
  tail_ = sorted.back() + (sorted.back() - sorted[(sorted.size() - 1) / 2]);
}

void TurnTimes::AddLikely(absl::Time pulled, absl::Time now, double samples, std::vector<LikelyPush>& likely) const {
  if (times_.empty()) return;
  const size_t first = likely.size();
  const auto add = [&](absl::Duration time) {
    if (pulled + time > now) likely.push_back({pulled + time, samples});
  };
  for (const absl::Duration time : times_) add(time);
  add(tail_);
  const auto ways = static_cast<double>(likely.size() - first);
  for (size_t i = first; i < likely.size(); ++i) likely[i].samples /= ways;
}

absl::Time BestEndOfStep(StepOutlook step, absl::Time now, double& best) {
  if (now <= step.begun) return now;
  best = std::max(best, step.samples / absl::ToDoubleSeconds(now - step.begun));
  std::sort(step.likely.begin(), step.likely.end(),
            [](const LikelyPush& a, const LikelyPush& b) { return a.at < b.at; });
  const absl::Time soon = step.begun + kSoon * (now - step.begun);
  absl::Time end = now;
  double samples = step.samples, rate_at_end = best;
  for (const LikelyPush& push : step.likely) {
    if (push.at > step.latest) break;
    samples += (push.at <= soon ? kMissedCounts : 1) * push.samples;
    const double rate = samples / absl::ToDoubleSeconds(push.at - step.begun);
    if (rate <= rate_at_end) continue;
    rate_at_end = rate;
    end = push.at;
  }
  return end;
}

}  // namespace slackline::ps
