// What this worker has done since it joined: written by the trainer after each step, read by the heartbeat thread.
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

// One finished step.
struct StepFacts {
  Clock64 clock;
  uint64_t samples = 0;
  double loss = 0;  // mean over the samples
  uint64_t correct = 0;
  uint64_t unjudged = 0;  // samples of which nobody knows whether they are correct
  absl::Duration compute;
  absl::Duration data_wait;  // of compute: for batches
  absl::Duration wait;       // for servers
  // From the commit until all shards had answered, and until the weights were there.
  absl::Duration push;
  absl::Duration pull;
  // Over the shards of the step.
  uint64_t applied = 0;
  uint64_t discarded = 0;
  uint64_t quarantined = 0;  // of those
  uint64_t lost = 0;
  uint64_t staleness_sum = 0;
  uint64_t staleness_max = 0;
  StalenessCounts staleness;
  uint64_t slack = 0;
  double gradient_norm = 0;
  // Values of gradients and weights, on the way to and from servers.
  uint64_t pushed_bytes = 0;
  uint64_t pulled_bytes = 0;
};

// Totals since Reset().
struct Progress {
  uint64_t steps = 0;
  StepFacts total;               // sums; maxima for what is called so; the latest clock
  double loss_sum = 0;           // over samples
  uint64_t samples_applied = 0;  // of the samples, those in the weights
  absl::Duration idle;           // since the last sign of life
  absl::Duration step_median;
  // Since the previous Take().
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
  // The trainer does something else than steps (it evaluates), and moves on.
  void Alive(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // The process computes. Until its first step is over, this is a sign of life, for at most `longest` after the last
  // other one: nobody knows yet how long a step takes.
  void Computes(absl::Time now, absl::Duration longest) ABSL_LOCKS_EXCLUDED(mutex_);
  // The trainer waits for servers: not its own stall.
  void SetWaiting(bool waiting) ABSL_LOCKS_EXCLUDED(mutex_);
  // For people: what else the trainer waits for; empty for nothing.
  void SetWaitsFor(std::string what) ABSL_LOCKS_EXCLUDED(mutex_);
  Progress Take(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr size_t kRecent = 31;

  absl::Duration Median() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  absl::Time moved_ ABSL_GUARDED_BY(mutex_);                            // the last sign of life but for processor time
  absl::Time alive_ ABSL_GUARDED_BY(mutex_);                            // the last sign of life
  std::array<absl::Duration, kRecent> recent_ ABSL_GUARDED_BY(mutex_);  // a ring of step times
};

}  // namespace slackline::worker
