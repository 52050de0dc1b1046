#include "worker/base/progress.h"

#include <algorithm>
#include <utility>

namespace slackline::worker {
namespace {

// Of the step's samples, as many as shards have applied the push.
uint64_t SamplesApplied(const StepFacts& step) {
  const uint64_t answers = step.applied + step.discarded;
  return answers > 0 ? step.samples * step.applied / answers : step.samples;
}

}  // namespace

void ProgressBoard::Reset(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  progress_ = {};
  moved_ = alive_ = now;
}

void ProgressBoard::Record(const StepFacts& step, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  recent_[progress_.steps % kRecent] = step.compute + step.wait;
  ++progress_.steps;
  StepFacts& total = progress_.total;
  total.clock = step.clock;
  total.samples += step.samples;
  progress_.samples_applied += SamplesApplied(step);
  progress_.loss_sum += step.loss * static_cast<double>(step.samples);
  total.correct += step.correct;
  total.unjudged += step.unjudged;
  total.without_loss += step.without_loss;
  total.compute += step.compute;
  total.data_wait += step.data_wait;
  total.wait += step.wait;
  total.push += step.push;
  total.pull += step.pull;
  total.applied += step.applied;
  total.discarded += step.discarded;
  total.quarantined += step.quarantined;
  total.lost += step.lost;
  total.pushed_bytes += step.pushed_bytes;
  total.pulled_bytes += step.pulled_bytes;
  total.staleness_sum += step.staleness_sum;
  total.staleness_max = std::max(total.staleness_max, step.staleness_max);
  total.staleness.Add(step.staleness);
  progress_.slack_max = std::max(progress_.slack_max, step.slack);
  progress_.gradient_norm_max = std::max(progress_.gradient_norm_max, step.gradient_norm);
  moved_ = alive_ = now;
}

void ProgressBoard::Alive(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  moved_ = alive_ = now;
}

void ProgressBoard::Computes(absl::Time now, absl::Duration longest) {
  absl::MutexLock lock(&mutex_);
  if (progress_.steps > 0) return;
  alive_ = now - moved_ <= longest ? now : moved_;
}

void ProgressBoard::SetWaiting(bool waiting) {
  absl::MutexLock lock(&mutex_);
  progress_.waiting = waiting;
}

void ProgressBoard::SetWaitsFor(std::string what) {
  absl::MutexLock lock(&mutex_);
  progress_.waits_for = std::move(what);
}

absl::Duration ProgressBoard::Median() const {
  std::array<absl::Duration, kRecent> times = recent_;
  const size_t count = std::min<size_t>(progress_.steps, kRecent);
  if (count == 0) return absl::ZeroDuration();
  std::nth_element(times.begin(), times.begin() + count / 2, times.begin() + count);
  return times[count / 2];
}

Progress ProgressBoard::Take(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  Progress progress = progress_;
  progress.idle = now - alive_;
  progress.step_median = Median();
  progress_.slack_max = 0;
  progress_.gradient_norm_max = 0;
  return progress;
}

}  // namespace slackline::worker
