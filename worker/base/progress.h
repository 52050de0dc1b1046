// Progress of this worker since it joined. The trainer writes it after each step, the heartbeat thread reads it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/staleness_counts.h"

namespace slackline::worker {

// Figures of one finished step.
struct StepFacts {
  Clock64 clock;
  uint64_t samples = 0;
  double loss = 0;  // mean over the samples
  uint64_t correct = 0;
  uint64_t unjudged = 0;      // samples for which it is not known if they are correct
  uint64_t without_loss = 0;  // samples whose loss is not known
  absl::Duration compute;
  absl::Duration data_wait;  // part of `compute`: wait for batches
  absl::Duration wait;       // wait for servers
  // Time from the commit until all shards had answered (push), and until the weights had arrived (pull).
  absl::Duration push;
  absl::Duration pull;
  // Sums over the shards of the step; staleness_max and slack are maxima over them.
  uint64_t applied = 0;
  uint64_t discarded = 0;
  uint64_t quarantined = 0;  // part of `discarded`
  uint64_t lost = 0;
  uint64_t staleness_sum = 0;
  uint64_t staleness_max = 0;
  StalenessCounts staleness;
  uint64_t slack = 0;
  double gradient_norm = 0;
  // Bytes of the values of gradients and weights, on the way to and from servers.
  uint64_t pushed_bytes = 0;
  uint64_t pulled_bytes = 0;
};

// Totals since Reset().
struct Progress {
  uint64_t steps = 0;
  StepFacts total;               // sums; staleness_max is a maximum, clock the latest; loss, slack, gradient_norm are 0
  double loss_sum = 0;           // sum over samples
  uint64_t samples_applied = 0;  // samples whose gradients are in the weights
  absl::Duration idle;           // time since the last sign of life
  absl::Duration step_median;
  // Maxima since the previous Take().
  uint64_t slack_max = 0;
  double gradient_norm_max = 0;
  bool waiting = false;
  std::string waits_for;
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
  Progress Take(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr size_t kRecent = 31;

  absl::Duration Median() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  absl::Time moved_ ABSL_GUARDED_BY(mutex_);                            // last sign of life, Computes() not counted
  absl::Time alive_ ABSL_GUARDED_BY(mutex_);                            // last sign of life
  std::array<absl::Duration, kRecent> recent_ ABSL_GUARDED_BY(mutex_);  // ring of step times
};

}  // namespace slackline::worker
