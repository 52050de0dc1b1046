// Watches how training goes: whether it diverges, and whether the bound of ssp still fits. Pure.
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "job.pb.h"
#include "scheduler/watch/divergence_guard.h"
#include "scheduler/watch/progress.h"
#include "scheduler/watch/staleness_bound.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

class TrainingWatch {
 public:
  explicit TrainingWatch(const job::Job& job);

  // Begins to watch the bound. `totals` are those of all workers up to now.
  void Begin(const state::Totals& totals, absl::Time now);

  // Returns what is wrong when training begins to diverge. `norm_peak` is the largest norm of a gradient since the
  // previous call.
  std::optional<std::string> FindDivergence(const state::Totals& totals, double norm_peak, absl::Time now);

  // Decides on the bound now and then. Returns the change, if there is one. `slack_peak` is the largest slack since the
  // previous call.
  std::optional<StalenessBound::Change> AdjustBound(const state::Totals& totals, uint64_t slack_peak,
                                                    uint64_t live_workers, absl::Time now);
  // Sets the bound to its smallest value, for good.
  std::optional<StalenessBound::Change> TightenBound(const std::string& reason);

  // Returns the bound of ssp; nullopt in other modes.
  std::optional<uint64_t> bound() const;
  uint64_t bound_changes() const { return bound_changes_; }
  uint64_t divergences() const { return divergences_; }
  // Returns the time of the last divergence in the life of this process; nullopt for none.
  std::optional<absl::Time> diverged_at() const { return diverged_at_; }

  void Save(state::Scheduler& state) const;
  // Continues from `state`, whose totals are `totals`.
  void Restore(const state::Scheduler& state, const state::Totals& totals);

 private:
  std::optional<StalenessBound::Change> Note(std::optional<StalenessBound::Change> change);

  DivergenceGuard guard_;
  state::Totals guarded_;  // totals when the guard was last asked
  uint64_t divergences_ = 0;
  std::optional<absl::Time> diverged_at_;
  std::optional<StalenessBound> bound_;
  uint64_t bound_changes_ = 0;
  // Time of the last decision on the bound, the totals then, and the largest slack since.
  absl::Time decided_ = absl::InfiniteFuture();
  state::Totals decided_totals_;
  uint64_t slack_max_ = 0;
};

}  // namespace slackline::scheduler
