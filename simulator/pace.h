// The durations of a simulated worker's steps.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <vector>

#include "absl/time/time.h"
#include "simulator/worker_plan.h"

namespace slackline::simulator {

// Purposes of random numbers.
enum RandomPurpose : uint32_t { kFactors = 1, kPauses = 2, kNoise = 3, kDeaths = 4 };

// Random numbers that depend only on the seed, the worker and the purpose: a stream for one purpose of one worker. No
// draw from one stream shifts the values of another.
//
// Thread-safety: none.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint32_t worker, uint32_t purpose) {
    std::seed_seq mixed{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), worker, purpose};
    engine_.seed(mixed);
  }

  // Returns a number in (0, 1]. The distributions of the standard library differ between libraries; these do not.
  double Uniform() { return (static_cast<double>(engine_() >> 11) + 1) * 0x1p-53; }
  // Returns a normal number with mean 0 and deviation 1 (Box and Muller 1958).
  double Normal() { return std::sqrt(-2 * std::log(Uniform())) * std::cos(2 * std::numbers::pi * Uniform()); }
  // Returns a number with mean 1; `sigma` is the deviation of its logarithm.
  double LogNormal(double sigma) { return std::exp(sigma * Normal() - sigma * sigma / 2); }
  double Exponential(double mean) { return -mean * std::log(Uniform()); }

 private:
  std::mt19937_64 engine_;
};

// Thread-safety: none.
class Pace {
 public:
  // `worker` is the worker's number, which selects its random numbers.
  Pace(const WorkerPlan& plan, const ComputeCost& cost, uint64_t seed, uint32_t worker);

  struct Work {
    uint64_t samples = 0;
    uint64_t batches = 1;
  };
  // Returns the duration of a step that begins now, including the pauses during it.
  absl::Duration Step(const Work& work, absl::Time now);
  // Returns the time until the end of the current pause of the latest step; 0 if there is none.
  absl::Duration LeftOfPause(absl::Time now) const;

 private:
  void PlanPause(absl::Time from);

  const WorkerPlan& plan_;
  const ComputeCost cost_;
  RandomStream factors_;
  RandomStream pauses_;
  absl::Time pause_ = absl::InfiniteFuture();  // begin of the next pause
  struct Pause {
    absl::Time begin, end;
  };
  std::vector<Pause> pauses_of_step_;
};

}  // namespace slackline::simulator
