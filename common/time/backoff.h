// Waiting times between attempts. They double, and are randomised so that many workers do not come back at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace slackline {

// Thread-safety: none.
class Backoff {
 public:
  struct Limits {
    absl::Duration first = absl::Milliseconds(20);
    absl::Duration max = absl::Seconds(2);
  };

  // Equal seeds give equal times.
  explicit Backoff(uint64_t seed) : Backoff(seed, Limits{}) {}
  Backoff(uint64_t seed, Limits limits) : limits_(limits), random_(seed), base_(limits.first) {}

  // Returns the next waiting time: a random time between half of the current base time and all of it. Then doubles the
  // base time, up to Limits::max.
  absl::Duration Next() {
    const double share = std::uniform_real_distribution<double>(0.5, 1.0)(random_);
    const absl::Duration wait = base_ * share;
    base_ = std::min(base_ * 2, limits_.max);
    return wait;
  }
  // Starts again with Limits::first, after an attempt has succeeded.
  void Reset() { base_ = limits_.first; }

 private:
  const Limits limits_;
  std::mt19937_64 random_;
  absl::Duration base_;
};

}  // namespace slackline
