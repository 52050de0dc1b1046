#include "scheduler/watch/training_watch.h"

#include <algorithm>

#include "common/job/job_kinds.h"
#include "common/job/push_samples.h"

namespace slackline::scheduler {
namespace {

// The bound of ssp is decided on no less than this: time, and steps of each live worker.
constexpr absl::Duration kBoundInterval = absl::Seconds(2);
constexpr uint64_t kBoundSteps = 8;

DivergenceGuard GuardOf(const job::Job& job) {
  // Enough that a few unlucky batches are no divergence.
  constexpr uint64_t kPushes = 8;
  DivergenceGuard::Config guard;
  guard.loss_max = job.guard().loss_max();
  guard.loss_factor = job.guard().loss_factor();
  guard.gradient_norm_max = job.guard().gradient_norm_max();
  // How many images there are is not known yet.
  guard.window_samples = kPushes * job.cluster().workers() * SamplesOfPush(job, job.training().batch_size());
  return DivergenceGuard(guard);
}

std::optional<StalenessBound> BoundOf(const job::Consistency& consistency) {
  if (!FactsOf(consistency).has_bound) return std::nullopt;
  StalenessBound::Config bound;
  bound.most = consistency.staleness_max();
  bound.least = std::min<uint64_t>(consistency.staleness_min(), bound.most);
  bound.automatic = consistency.staleness_auto();
  return StalenessBound(bound);
}

}  // namespace

TrainingWatch::TrainingWatch(const job::Job& job) : guard_(GuardOf(job)), bound_(BoundOf(job.consistency())) {}

void TrainingWatch::Begin(const state::Totals& totals, absl::Time now) {
  decided_ = now;
  decided_totals_ = totals;
}

std::optional<std::string> TrainingWatch::FindDivergence(const state::Totals& totals, double norm_peak,
                                                         absl::Time now) {
  DivergenceGuard::Seen seen;
  seen.samples = totals.samples() - guarded_.samples();
  seen.samples_with_loss = seen.samples - (totals.samples_without_loss() - guarded_.samples_without_loss());
  seen.loss_sum = totals.loss_sum() - guarded_.loss_sum();
  seen.gradient_norm_max = norm_peak;
  guarded_ = totals;
  std::optional<std::string> alarm = guard_.Observe(seen);
  if (alarm) {
    ++divergences_;
    diverged_at_ = now;
  }
  return alarm;
}

std::optional<StalenessBound::Change> TrainingWatch::AdjustBound(const state::Totals& totals, uint64_t slack_peak,
                                                                 uint64_t live_workers, absl::Time now) {
  if (!bound_) return std::nullopt;
  slack_max_ = std::max(slack_max_, slack_peak);
  const state::Totals& before = decided_totals_;
  if (now - decided_ < kBoundInterval) return std::nullopt;
  if (totals.steps() - before.steps() < kBoundSteps * std::max<uint64_t>(1, live_workers)) return std::nullopt;
  StalenessBound::Interval seen;
  seen.live_workers = live_workers;
  seen.compute_seconds = totals.compute_seconds() - before.compute_seconds();
  seen.wait_seconds = totals.wait_seconds() - before.wait_seconds();
  if (const uint64_t answers = totals.staleness_answers() - before.staleness_answers(); answers > 0) {
    seen.staleness_mean =
        static_cast<double>(totals.staleness_sum() - before.staleness_sum()) / static_cast<double>(answers);
  }
  seen.slack_max = slack_max_;
  Begin(totals, now);
  slack_max_ = 0;
  return Note(bound_->Observe(seen));
}

std::optional<StalenessBound::Change> TrainingWatch::TightenBound(const std::string& reason) {
  if (!bound_) return std::nullopt;
  return Note(bound_->Tighten(reason));
}

std::optional<StalenessBound::Change> TrainingWatch::Note(std::optional<StalenessBound::Change> change) {
  if (change) ++bound_changes_;
  return change;
}

std::optional<uint64_t> TrainingWatch::bound() const {
  if (!bound_) return std::nullopt;
  return bound_->bound();
}

void TrainingWatch::Save(state::Scheduler& state) const {
  if (bound_) state.set_staleness_bound(bound_->bound());
  state.set_staleness_bound_changes(bound_changes_);
  state.set_divergences(divergences_);
}

void TrainingWatch::Restore(const state::Scheduler& state, const state::Totals& totals) {
  guarded_ = totals;
  if (bound_ && state.has_staleness_bound()) bound_->Restore(state.staleness_bound());
  bound_changes_ = state.staleness_bound_changes();
  divergences_ = state.divergences();
}

}  // namespace slackline::scheduler
