// How training goes: the workers' totals turned into rates, means and the slack. Pure.
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "common/staleness_counts.h"
#include "scheduler.pb.h"
#include "scheduler/data_ranges.h"
#include "scheduler/energy_ledger.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// Sums over the lives of one worker, or over all workers, those that are gone included.
struct ProgressTotals {
  uint64_t samples = 0;
  uint64_t samples_applied = 0;  // of those, without what was discarded
  uint64_t steps = 0;
  double loss_sum = 0;
  uint64_t correct = 0;
  uint64_t unjudged = 0;  // samples that `correct` leaves out
  double compute_seconds = 0;
  double wait_seconds = 0;
  double data_seconds = 0;
  double push_seconds = 0;
  double pull_seconds = 0;
  uint64_t pushes_applied = 0;
  uint64_t pushes_discarded = 0;
  uint64_t pushes_quarantined = 0;  // of those
  uint64_t pushes_lost = 0;
  // Values of gradients and weights, without headers and repetitions.
  uint64_t pushed_bytes = 0;
  uint64_t pulled_bytes = 0;
  uint64_t staleness_sum = 0;
  uint64_t staleness_answers = 0;

  void Add(const ProgressTotals& other);
};

// The share of correct samples among those that were judged between two standings; absent where none were.
std::optional<double> AccuracyOf(const ProgressTotals& now, const ProgressTotals& before);

// Means over what was trained since the report before; the last known ones when there was nothing.
struct ProgressReport {
  ProgressTotals totals;
  // Absent until something was trained.
  std::optional<double> loss;
  std::optional<double> accuracy;
  double staleness_mean = 0;
  StalenessCounts staleness;
  // Since the beginning.
  uint64_t staleness_max = 0;
  // Since the report before: how far a live worker was ahead of the slowest live one, in clocks.
  uint64_t slack = 0;
  // Since the report before: the largest norm of a gradient.
  double gradient_norm_max = 0;
};

class Progress {
 public:
  // Rates are means over the latest `window`.
  explicit Progress(absl::Duration window = absl::Seconds(5)) : window_(window) {}

  // What a worker says of itself; totals since its incarnation began. Words that come after later ones (a worker
  // speaks in heartbeats and when it asks for work), totals that shrink, and losses that are no number are not counted.
  // `in_clock`: it is live, so its clock counts for the slack.
  void Heard(const Holder& holder, const wire::WorkerProgress& progress, bool in_clock, absl::Time now);
  // It is out of the clock.
  void Left(const Holder& holder);

  // The worker has gone for good. Its totals stay in totals(), and are part of forgotten().
  void Forget(WorkerId worker);

  // Ends the reporting interval. The report before is latest().
  const ProgressReport& Report();
  const ProgressReport& latest() const { return latest_; }

  void Save(state::Progress& state) const;
  // Of a job that goes on. Rates begin anew.
  void Restore(const state::Progress& state);

  const ProgressTotals& totals() const { return totals_; }
  // Of one worker, over all its lives; zeros before its first words.
  ProgressTotals TotalsOf(WorkerId worker) const;
  // The sum over workers that are forgotten.
  const ProgressTotals& forgotten() const { return forgotten_; }
  // Of all answers since the beginning, and the largest slack.
  const StalenessCounts& staleness() const { return staleness_; }
  uint64_t staleness_max() const { return staleness_max_; }
  uint64_t slack_max() const { return slack_max_; }
  // Of all nodes.
  const EnergyLedger& energy() const { return energy_; }
  // Since the call before.
  uint64_t TakeSlackPeak() { return std::exchange(slack_peak_, 0); }
  double TakeGradientNormPeak() { return std::exchange(norm_peak_, 0); }
  double SamplesPerSecond(absl::Time now) const;
  // Of one worker, over its latest heartbeats; 0 when unknown.
  double SamplesPerSecond(const Holder& holder, absl::Time now) const;
  // The worker's latest words; null before the first.
  const wire::WorkerProgress* Of(const Holder& holder) const;

 private:
  // Samples by time, no older than the window but for one.
  using Series = std::deque<std::pair<absl::Time, uint64_t>>;

  struct Heartbeats {
    Holder holder;
    wire::WorkerProgress last;
    bool in_clock = false;
    Series samples;
    ProgressTotals totals;  // over all lives
  };

  void Extend(Series& series, absl::Time now, uint64_t samples) const;
  double Rate(const Series& series, absl::Time now) const;
  void ObserveSlack(const wire::WorkerProgress& progress);
  void RaiseSlack(uint64_t slack);
  void RaiseNorm(double norm);

  const absl::Duration window_;
  std::map<WorkerId, Heartbeats> workers_;
  ProgressTotals totals_;
  ProgressTotals forgotten_;
  StalenessCounts staleness_;
  StalenessCounts staleness_reported_;  // of them, those in reports
  EnergyLedger energy_;
  uint64_t staleness_max_ = 0;
  uint64_t slack_ = 0;
  uint64_t slack_max_ = 0;
  uint64_t slack_peak_ = 0;
  double norm_ = 0;  // largest since the report before
  double norm_peak_ = 0;
  Series samples_;
  ProgressReport latest_;
};

}  // namespace slackline::scheduler
