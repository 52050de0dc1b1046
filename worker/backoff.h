// Waiting times between attempts: they double, and are spread so that many workers do not come back at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace slackline::worker {

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

  // The next waiting time: between half of the doubled time and the whole of it.
  absl::Duration Next() {
    const double share = std::uniform_real_distribution<double>(0.5, 1.0)(random_);
    const absl::Duration wait = base_ * share;
    base_ = std::min(base_ * 2, limits_.max);
    return wait;
  }
  // An attempt has succeeded: begin small again.
  void Reset() { base_ = limits_.first; }

 private:
  const Limits limits_;
  std::mt19937_64 random_;
  absl::Duration base_;
};

}  // namespace slackline::worker
