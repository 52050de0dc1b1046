// Sources of time that are passed in, so that tests and simulations control time.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace slackline {

// Thread-safety: safe.
class TimeSource {
 public:
  virtual ~TimeSource() = default;

  // Returns the time, which never goes backwards. Only differences are meaningful.
  virtual absl::Time Now() const = 0;
};

// The machine's steady clock, counted from its boot.
class SteadyTime : public TimeSource {
 public:
  absl::Time Now() const override;
};

// The processor time of the calling thread. Time during which others use the processor is not included.
class ThreadTime : public TimeSource {
 public:
  absl::Time Now() const override;
};

// Time that stands still until Advance() is called. For tests.
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
