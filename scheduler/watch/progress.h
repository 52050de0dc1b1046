// Progress of training: turns the workers' totals into rates, means and the slack. Pure.
//
// Thread-safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/base/staleness_counts.h"
#include "common/metrics/measured.h"
#include "scheduler.pb.h"
#include "scheduler/watch/energy_ledger.h"
#include "scheduler/watch/totals.h"
#include "scheduler/work/data_ranges.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// Means over what was trained since the previous report; the last known ones if nothing was.
struct ProgressReport {
  state::Totals totals;
  // Loss and accuracy; absent until something was trained.
  std::optional<double> loss;
  std::optional<double> accuracy;
  // Other figures of a script: the mean over live workers of what each reported last.
  NamedValues values;
  double staleness_mean = 0;
  StalenessCounts staleness;
  // Largest staleness since the beginning.
  uint64_t staleness_max = 0;
  // Largest slack since the previous report: how far a live worker was ahead of the slowest live one, in clocks.
  uint64_t slack = 0;
  // Largest norm of a gradient since the previous report.
  double gradient_norm_max = 0;
  // Learning rate that the last push names, of the worker whose steps were heard last; absent: the rate is the job's.
  std::optional<double> learning_rate;
};

// Samples by time; at most one point is older than the window of its rates.
using SampleSeries = std::deque<std::pair<absl::Time, uint64_t>>;

class Progress {
 public:
  // Rates are means over the latest `window`.
  explicit Progress(absl::Duration window = absl::Seconds(5)) : window_(window) {}

  // Notes what a worker reports of itself; totals count from the beginning of its incarnation. Not counted are reports
  // that arrive after later ones (a worker reports in heartbeats and when it asks for work), totals that shrink, and
  // losses that are not numbers. `in_clock`: true if the worker is live, so that its clock counts for the slack.
  void Heard(const Holder& holder, const wire::WorkerProgress& progress, bool in_clock, absl::Time now);
  // Excludes the worker's clock from the slack.
  void Left(const Holder& holder);

  // Notes what a server that continues from snapshots knows of a worker: what the worker has reported beyond it is
  // lost. The worker reports the loss with its next step. If it makes none, TakeUnreported() returns the number of its
  // lost sub-pushes, once, and adds it to the totals. Pushes that the servers had discarded count as lost here, and
  // only clocks that were heard count. `after`: reports that are heard from then on were sent after the restore.
  void Restored(ServerId server, const Holder& holder, const wire::RestoredWorker& restored, absl::Time after);
  uint64_t TakeUnreported(const Holder& holder);

  // Forgets a worker that has gone for good. Its totals stay in totals(), and become part of forgotten().
  void Forget(WorkerId worker);

  // Ends the reporting interval and returns its report, which then is latest().
  const ProgressReport& Report();
  const ProgressReport& latest() const { return latest_; }

  void Save(state::Progress& state) const;
  // Continues a job from a saved state. Rates start over.
  void Restore(const state::Progress& state);
  // Continues a job in a new run, from the state in a checkpoint. `names` are those of its workers: their totals become
  // earlier(), since all workers of this run register anew.
  void Resume(const state::Progress& state, const std::map<WorkerId, std::string>& names);

  const state::Totals& totals() const { return totals_; }
  // Returns the totals of one worker, over all its lives; zeros before its first report.
  state::Totals TotalsOf(WorkerId worker) const;
  // Sum over workers that are forgotten.
  const state::Totals& forgotten() const { return forgotten_; }
  // Sums over workers of the runs that this one continues, by name.
  const std::map<std::string, state::Totals>& earlier() const { return earlier_; }
  // Staleness of all answers since the beginning; its largest value, and the largest slack.
  const StalenessCounts& staleness() const { return staleness_; }
  uint64_t staleness_max() const { return staleness_max_; }
  uint64_t slack_max() const { return slack_max_; }
  // Energy of all nodes.
  const EnergyLedger& energy() const { return energy_; }
  // Returns the samples of power since the previous call. `began`: when training began.
  std::vector<PowerRow> TakePower(absl::Time began) { return energy_.TakeSamples(began); }
  // Returns the largest slack since the previous call; TakeGradientNormPeak() does so for the norm of a gradient.
  uint64_t TakeSlackPeak() { return std::exchange(slack_peak_, 0); }
  double TakeGradientNormPeak() { return std::exchange(norm_peak_, 0); }
  double SamplesPerSecond(absl::Time now) const;
  // Returns the mean over the latest 10 minutes: evaluations and other breaks hardly change it.
  double SamplesPerSecondLately(absl::Time now) const;
  // Returns the speed of one worker, over its latest heartbeats; 0 if unknown.
  double SamplesPerSecond(const Holder& holder, absl::Time now) const;
  // Returns the worker's latest report; null before the first.
  const wire::WorkerProgress* Of(const Holder& holder) const;

 private:
  // Window of SamplesPerSecondLately().
  static constexpr absl::Duration kLately = absl::Minutes(10);

  // Pushes of a worker that restores of a server have lost and the worker has not reported.
  struct UnreportedLoss {
    uint64_t count = 0;
    Clock64 to;       // last clock that was heard before the restore
    Clock64 told_to;  // losses up to this clock are in the totals
    absl::Time after = absl::InfinitePast();
    std::optional<uint64_t> steps;  // in the first report after the restore

    // Notes that the losses are in the totals, or were none.
    void Settle() {
      count = 0;
      told_to = std::max(told_to, to);
    }
  };
  struct Heartbeats {
    Holder holder;
    wire::WorkerProgress last;
    std::optional<uint64_t> clock;  // its entry in clocks_
    SampleSeries samples;
    state::Totals totals;  // sums over all lives
    std::map<ServerId, UnreportedLoss> unreported;
  };

  // Returns the means of the figures that live workers reported last.
  NamedValues MeanValues() const;
  // Sets the clock that counts for the slack; nullopt: none.
  void SetClock(Heartbeats& worker, std::optional<uint64_t> clock);
  void ObserveSlack(const wire::WorkerProgress& progress);
  void RaiseSlack(uint64_t slack);
  void RaiseNorm(double norm);
  void NoteLearningRate(const wire::WorkerProgress& progress);

  const absl::Duration window_;
  std::map<WorkerId, Heartbeats> workers_;
  std::multiset<uint64_t> clocks_;  // of live workers, for the slack
  state::Totals totals_;
  state::Totals forgotten_;
  std::map<std::string, state::Totals> earlier_;
  StalenessCounts staleness_;
  StalenessCounts staleness_reported_;  // counts of staleness_ that are in reports
  EnergyLedger energy_;
  uint64_t staleness_max_ = 0;
  uint64_t slack_ = 0;
  uint64_t slack_max_ = 0;
  uint64_t slack_peak_ = 0;
  double norm_ = 0;  // largest since the previous report
  double norm_peak_ = 0;
  SampleSeries samples_;
  SampleSeries samples_lately_;
  ProgressReport latest_;
};

}  // namespace slackline::scheduler
