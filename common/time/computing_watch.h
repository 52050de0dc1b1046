// Distinguishes a process that computes from one that hangs, by the processor time that it uses.
#pragma once

#include "absl/time/time.h"
#include "common/time/clock.h"

namespace slackline {

// The processor time of this process: the sum over all of its threads.
//
// Thread-safety: safe.
class ProcessTime : public TimeSource {
 public:
  absl::Time Now() const override;
};

// Tells whether this process computes. A long computation and a hang both show no step, but only the computation uses
// processors.
//
// Thread-safety: none.
// Ownership:     borrows both clocks.
class ComputingWatch {
 public:
  // A process computes if it uses at least this share of one processor. Heartbeats alone use less.
  static constexpr double kShareMin = 0.05;
  // A process that computes may show no progress for this many times as long as one that does not.
  static constexpr int kPatience = 20;

  // Begins to watch now. `processor` is a ProcessTime; tests pass another clock.
  ComputingWatch(const TimeSource& time, const TimeSource& processor)
      : time_(time), processor_(processor), since_(time.Now()), used_(processor.Now()) {}

  // Returns whether the process has computed since the last call, or since the watch began.
  bool Computed();
  // Returns the time since the last call of Computed(), or since the watch began.
  absl::Duration window() const { return time_.Now() - since_; }

 private:
  const TimeSource& time_;
  const TimeSource& processor_;
  absl::Time since_;
  absl::Time used_;
};

// Decides whether to wait again for a part of this process that shows no progress but may compute.
//
// Thread-safety: none.
class ComputingPatience {
 public:
  // `waits` is the largest number of waits: ComputingWatch::kPatience, or 1 for a part that gets no patience.
  explicit ComputingPatience(int waits) : waits_(waits) {}

  // Call it after a wait in vain. Returns true if another wait is worth it, since the process computed meanwhile.
  bool Lasts() { return ++waited_ < waits_ && watch_.Computed(); }
  // Returns the number of waits in vain so far.
  int waited() const { return waited_; }

 private:
  const SteadyTime time_;
  const ProcessTime processor_;
  ComputingWatch watch_{time_, processor_};
  const int waits_;
  int waited_ = 0;
};

}  // namespace slackline
