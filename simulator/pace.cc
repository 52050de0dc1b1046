#include "simulator/pace.h"

#include <algorithm>

namespace slackline::simulator {

Pace::Pace(const WorkerPlan& plan, const ComputeCost& cost, uint64_t seed, uint32_t worker)
    : plan_(plan), cost_(cost), factors_(seed, worker, kFactors), pauses_(seed, worker, kPauses) {
  PlanPause(plan.joins);
}

void Pace::PlanPause(absl::Time from) {
  if (plan_.pause_every <= absl::ZeroDuration()) return;
  pause_ = from + absl::Seconds(pauses_.Exponential(absl::ToDoubleSeconds(plan_.pause_every)));
}

absl::Duration Pace::Step(const Work& work, absl::Time now) {
  const double factor = plan_.jitter > 0 ? factors_.LogNormal(plan_.jitter) : 1;
  const absl::Duration plain =
      cost_.per_step * static_cast<double>(work.batches) + cost_.per_sample * static_cast<double>(work.samples);
  absl::Time end = now + plain * (plan_.slowdown * factor);
  pauses_of_step_.clear();
  while (pause_ <= end) {
    // One that began while it waited for servers is over earlier.
    const absl::Time over = pause_ + plan_.pause;
    pauses_of_step_.push_back({pause_, over});
    end += std::max(absl::ZeroDuration(), over - std::max(pause_, now));
    PlanPause(over);
  }
  return end - now;
}

absl::Duration Pace::LeftOfPause(absl::Time now) const {
  for (const Pause& pause : pauses_of_step_) {
    if (pause.begin <= now && now < pause.end) return pause.end - now;
  }
  return absl::ZeroDuration();
}

}  // namespace slackline::simulator
