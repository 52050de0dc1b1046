#include "scheduler/progress.h"

#include <algorithm>
#include <cmath>

namespace slackline::scheduler {
namespace {

// What has been added to a total since it was last heard of; 0 when it has shrunk.
uint64_t Grown(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

}  // namespace

void Progress::Heard(const Holder& holder, const wire::WorkerProgress& progress, bool in_clock, absl::Time now) {
  Heartbeats& worker = workers_[holder.worker];
  if (worker.holder != holder) {
    worker = Heartbeats{};
    worker.holder = holder;
  }
  const wire::WorkerProgress& before = worker.last;
  if (progress.steps() < before.steps()) {
    // Overtaken; what happened between the last two words is in it nevertheless.
    if (in_clock && progress.has_slack_max()) ObserveSlack(progress);
    return;
  }
  totals_.samples += Grown(progress.samples(), before.samples());
  totals_.steps += Grown(progress.steps(), before.steps());
  totals_.correct += Grown(progress.correct(), before.correct());
  totals_.staleness_sum += Grown(progress.staleness_sum(), before.staleness_sum());
  totals_.staleness_answers += Grown(progress.staleness_answers(), before.staleness_answers());
  const double loss = progress.loss_sum() - before.loss_sum();
  if (std::isfinite(loss)) totals_.loss_sum += loss;
  staleness_max_ = std::max(staleness_max_, progress.staleness_max());
  worker.last = progress;
  worker.in_clock = in_clock;
  Extend(worker.samples, now, progress.samples());
  Extend(samples_, now, totals_.samples);
  if (in_clock) ObserveSlack(progress);
}

void Progress::ObserveSlack(const wire::WorkerProgress& progress) {
  if (progress.has_slack_max()) {
    slack_ = std::max(slack_, progress.slack_max());
    return;
  }
  uint64_t clock_min = progress.clock();
  uint64_t clock_max = progress.clock();
  for (const auto& [id, worker] : workers_) {
    if (!worker.in_clock) continue;
    clock_min = std::min(clock_min, worker.last.clock());
    clock_max = std::max(clock_max, worker.last.clock());
  }
  slack_ = std::max(slack_, clock_max - clock_min);
}

void Progress::Left(const Holder& holder) {
  auto found = workers_.find(holder.worker);
  if (found == workers_.end() || found->second.holder != holder) return;
  found->second.in_clock = false;
  found->second.samples.clear();
}

const ProgressReport& Progress::Report() {
  const ProgressTotals& before = latest_.totals;
  if (const uint64_t samples = totals_.samples - before.samples; samples > 0) {
    latest_.loss = (totals_.loss_sum - before.loss_sum) / static_cast<double>(samples);
    latest_.accuracy = static_cast<double>(totals_.correct - before.correct) / static_cast<double>(samples);
  }
  if (const uint64_t answers = totals_.staleness_answers - before.staleness_answers; answers > 0) {
    latest_.staleness_mean =
        static_cast<double>(totals_.staleness_sum - before.staleness_sum) / static_cast<double>(answers);
  }
  latest_.staleness_max = staleness_max_;
  latest_.slack = slack_;
  latest_.totals = totals_;
  slack_ = 0;
  return latest_;
}

void Progress::Extend(Series& series, absl::Time now, uint64_t samples) const {
  // Heartbeats of many workers come close together: a few hundred points are enough for any window.
  if (series.size() > 1 && now - (series.end() - 2)->first < window_ / 200) {
    series.back() = {now, samples};
  } else {
    series.emplace_back(now, samples);
  }
  while (series.size() > 2 && now - series[1].first >= window_) series.pop_front();
}

double Progress::Rate(const Series& series, absl::Time now) const {
  if (series.size() < 2 || now - series.back().first > window_) return 0;
  const double seconds = absl::ToDoubleSeconds(series.back().first - series.front().first);
  const uint64_t samples = Grown(series.back().second, series.front().second);
  return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
}

double Progress::SamplesPerSecond(absl::Time now) const { return Rate(samples_, now); }

double Progress::SamplesPerSecond(const Holder& holder, absl::Time now) const {
  auto found = workers_.find(holder.worker);
  return found != workers_.end() && found->second.holder == holder ? Rate(found->second.samples, now) : 0;
}

const wire::WorkerProgress* Progress::Of(const Holder& holder) const {
  auto found = workers_.find(holder.worker);
  return found != workers_.end() && found->second.holder == holder ? &found->second.last : nullptr;
}

}  // namespace slackline::scheduler
