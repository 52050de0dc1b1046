#include "worker/base/progress.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace slackline::worker {
namespace {

// Of the step's samples, as many as shards have applied the push.
uint64_t SamplesApplied(const StepFacts& step) {
  const uint64_t answers = step.shards_applied + step.shards_discarded;
  return answers > 0 ? step.samples * step.shards_applied / answers : step.samples;
}

// Adds the figure of one more step to that over all steps.
template <typename Value>
void Accumulate(StepFigure::Over over, const Value& step, Value& total) {
  switch (over) {
    case StepFigure::Over::kSum:
      if constexpr (requires { total += step; }) total += step;
      break;
    case StepFigure::Over::kMax:
    case StepFigure::Over::kPeak:
      total = std::max(total, step);
      break;
    case StepFigure::Over::kLast:
      total = step;
      break;
  }
}

}  // namespace

std::variant<uint64_t, double> ValueOf(const StepFigure& figure, const StepFacts& step) {
  const auto convert = [&](auto member) -> std::variant<uint64_t, double> {
    const auto value = step.*member;
    if constexpr (requires { value.value(); }) {
      return value.value();
    } else if constexpr (std::is_same_v<decltype(value), const absl::Duration>) {
      return absl::ToDoubleSeconds(value);
    } else {
      return value;
    }
  };
  return std::visit(convert, figure.of);
}

void ProgressBoard::Reset(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  NamedValues values = std::move(progress_.values);
  progress_ = {};
  progress_.values = std::move(values);
  moved_ = alive_ = now;
}

void ProgressBoard::Record(const StepFacts& step, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  recent_[progress_.steps % kRecent] = step.compute + step.wait;
  ++progress_.steps;
  StepFacts& total = progress_.total;
  for (const StepFigure& figure : kFigures) {
    std::visit([&](auto value) { Accumulate(figure.over, step.*value, total.*value); }, figure.of);
  }
  total.staleness.Add(step.staleness);
  total.learning_rate = step.learning_rate;
  progress_.samples_applied += SamplesApplied(step);
  progress_.loss_sum += step.loss * static_cast<double>(step.samples);
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

void ProgressBoard::SetValues(NamedValues values) {
  absl::MutexLock lock(&mutex_);
  progress_.values = std::move(values);
}

absl::Duration ProgressBoard::Median() const {
  std::array<absl::Duration, kRecent> times = recent_;
  const size_t count = std::min<size_t>(progress_.steps, kRecent);
  if (count == 0) return absl::ZeroDuration();
  std::nth_element(times.begin(), times.begin() + count / 2, times.begin() + count);
  return times[count / 2];
}

StepTotals ProgressBoard::Take(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  StepTotals progress = progress_;
  progress.idle = now - alive_;
  progress.step_median = Median();
  StepFacts& total = progress_.total;
  for (const StepFigure& figure : kFigures) {
    if (figure.over == StepFigure::Over::kPeak) std::visit([&](auto value) { total.*value = {}; }, figure.of);
  }
  return progress;
}

}  // namespace slackline::worker
