#include "scheduler/work/batch_sizes.h"

#include <algorithm>
#include <cmath>

namespace slackline::scheduler {
namespace {

// Of the newest measurement.
constexpr double kWeight = 0.3;
// A measurement covers at least so much computing.
constexpr double kSecondsMin = 0.2;
// As of training.batch_size.
constexpr double kBatchSizeMax = 1 << 20;

}  // namespace

void BatchSizes::Observe(WorkerId worker, const Computed& totals) {
  Speed& speed = speeds_[worker];
  const double seconds = totals.seconds - speed.seen.seconds;
  if (!(seconds >= kSecondsMin) || totals.samples <= speed.seen.samples) return;
  const double measured = static_cast<double>(totals.samples - speed.seen.samples) / seconds;
  speed.seen = totals;
  const bool first = speed.samples_per_second == 0;
  speed.samples_per_second += (first ? 1 : kWeight) * (measured - speed.samples_per_second);
}

double BatchSizes::SamplesPerSecond(WorkerId worker) const {
  const auto found = speeds_.find(worker);
  return found != speeds_.end() ? found->second.samples_per_second : 0;
}

uint32_t BatchSizes::For(WorkerId worker, absl::Span<const WorkerId> live) const {
  const double own = SamplesPerSecond(worker);
  if (!config_.balance || own == 0) return config_.batch_size;
  double sum = 0;
  size_t known = 0;
  for (const WorkerId other : live) {
    const double speed = SamplesPerSecond(other);
    sum += speed;
    known += speed > 0 ? 1 : 0;
  }
  if (known == 0) return config_.batch_size;
  const double mean = sum / static_cast<double>(known);
  const double size = std::round(config_.batch_size * own / mean);
  return static_cast<uint32_t>(std::clamp<double>(size, config_.least, kBatchSizeMax));
}

}  // namespace slackline::scheduler
