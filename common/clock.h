// Time as a value that is passed in, so that tests and simulations own it.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace slackline {

// Thread-safety: safe.
class TimeSource {
 public:
  virtual ~TimeSource() = default;

  // Never goes backwards. Only differences mean anything.
  virtual absl::Time Now() const = 0;
};

// The machine's steady clock, counted from its boot.
class SteadyTime : public TimeSource {
 public:
  absl::Time Now() const override;
};

// What the calling thread has had of processors: what others take of them meanwhile is not in it.
class ThreadTime : public TimeSource {
 public:
  absl::Time Now() const override;
};

// Stands still until told. For tests.
//
// Thread-safety: none; one thread.
class ManualTime : public TimeSource {
 public:
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration by) { now_ += by; }

 private:
  absl::Time now_ = absl::UnixEpoch();
};

}  // namespace slackline
