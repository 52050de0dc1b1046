// Progress of this worker since it joined. The trainer writes it after each step, the heartbeat thread reads it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/metrics/measured.h"
#include "worker/base/step_report.h"

namespace slackline::worker {

// Facts about one finished step.
struct StepFacts : StepReport {
  uint64_t samples = 0;
  double loss = 0;  // mean over the samples
  uint64_t correct = 0;
  uint64_t unjudged = 0;      // samples for which it is not known if they are correct
  uint64_t without_loss = 0;  // samples whose loss is not known
  absl::Duration compute;
  absl::Duration data_wait;  // part of `compute`: wait for batches
  absl::Duration wait;       // wait for servers
  double gradient_norm = 0;
  uint64_t local_steps = 0;  // steps of the worker's own optimizer, if the push is a round of local training
  // First learning rate that the push names; absent: the rate is the job's.
  std::optional<double> learning_rate = std::nullopt;
};

// Figure of a step that the worker reports.
struct StepFigure {
  // How the figures of steps make up that of a report; kPeak: maximum since the previous Take().
  enum class Over { kSum, kMax, kPeak, kLast };

  std::string_view name;  // of its field in wire.WorkerProgress, whose options declare its series
  std::variant<uint64_t StepFacts::*, double StepFacts::*, absl::Duration StepFacts::*, Clock64 StepFacts::*> of;
  Over over = Over::kSum;
};

// Returns the figure in the unit of its field: a number, or seconds.
std::variant<uint64_t, double> ValueOf(const StepFigure& figure, const StepFacts& step);

// Figures, each with a member of its own, in the order of their series at /metrics.
inline constexpr StepFigure kFigures[] = {
    {"samples", &StepFacts::samples},
    {"correct", &StepFacts::correct},
    {"samples_unjudged", &StepFacts::unjudged},
    {"samples_without_loss", &StepFacts::without_loss},
    {"pushed_bytes", &StepFacts::pushed_bytes},
    {"pulled_bytes", &StepFacts::pulled_bytes},
    {"pushes_applied", &StepFacts::shards_applied},
    {"pushes_discarded", &StepFacts::shards_discarded},
    {"pushes_quarantined", &StepFacts::shards_quarantined},
    {"pushes_lost", &StepFacts::lost},
    {"compute_seconds", &StepFacts::compute},
    {"data_seconds", &StepFacts::data_wait},
    {"wait_seconds", &StepFacts::wait},
    {"local_steps", &StepFacts::local_steps},
    {"push_seconds", &StepFacts::pushed},
    {"pull_seconds", &StepFacts::pulled},
    {"staleness_sum", &StepFacts::staleness_sum},
    {"slack_max", &StepFacts::slack, StepFigure::Over::kPeak},
    {"staleness_max", &StepFacts::staleness_max, StepFigure::Over::kMax},
    {"clock", &StepFacts::clock, StepFigure::Over::kLast},
    {"gradient_norm_max", &StepFacts::gradient_norm, StepFigure::Over::kPeak},
};

// Totals since Reset().
struct StepTotals {
  uint64_t steps = 0;
  StepFacts total;               // figures over the steps; `loss` and `waited` are 0
  double loss_sum = 0;           // sum over samples
  uint64_t samples_applied = 0;  // samples whose gradients are in the weights
  absl::Duration idle;           // time since the last sign of life
  absl::Duration step_median;
  bool waiting = false;
  std::string waits_for;
  NamedValues values;  // last figures that the worker's script reported under names of its own
};

// Thread-safety: safe; the lock is held for a few instructions.
class ProgressBoard {
 public:
  ProgressBoard() { Reset(absl::InfinitePast()); }

  void Reset(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  void Record(const StepFacts& step, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Records a sign of life of a trainer that does something else than steps, for example an evaluation.
  void Alive(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Records that the process computes. Until its first step is over, this is a sign of life, but for at most `longest`
  // after the last other sign of life: nobody knows yet how long a step takes.
  void Computes(absl::Time now, absl::Duration longest) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sets whether the trainer waits for servers. Such a wait is not a stall of the worker itself.
  void SetWaiting(bool waiting) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sets the text that tells people what else the trainer waits for; empty: nothing.
  void SetWaitsFor(std::string what) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sets the figures that the worker's script reports. They stay after Reset().
  void SetValues(NamedValues values) ABSL_LOCKS_EXCLUDED(mutex_);
  StepTotals Take(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr size_t kRecent = 31;

  absl::Duration Median() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  StepTotals progress_ ABSL_GUARDED_BY(mutex_);
  absl::Time moved_ ABSL_GUARDED_BY(mutex_);                            // last sign of life, Computes() not counted
  absl::Time alive_ ABSL_GUARDED_BY(mutex_);                            // last sign of life
  std::array<absl::Duration, kRecent> recent_ ABSL_GUARDED_BY(mutex_);  // ring of step times
};

}  // namespace slackline::worker
