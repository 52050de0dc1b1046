// Random numbers that depend on nothing but a seed and who draws them.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace slackline::simulator {

// One stream for each purpose of each worker, so that no draw of one shifts those of another.
//
// Thread-safety: none.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint32_t worker, uint32_t purpose) {
    std::seed_seq mixed{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), worker, purpose};
    engine_.seed(mixed);
  }

  // In (0, 1]. The standard's distributions differ between libraries; these do not.
  double Uniform() { return (static_cast<double>(engine_() >> 11) + 1) * 0x1p-53; }
  // Mean 0, deviation 1 (Box and Muller 1958).
  double Normal() { return std::sqrt(-2 * std::log(Uniform())) * std::cos(2 * std::numbers::pi * Uniform()); }
  // Mean 1; `sigma` is the deviation of the logarithm.
  double LogNormal(double sigma) { return std::exp(sigma * Normal() - sigma * sigma / 2); }
  double Exponential(double mean) { return -mean * std::log(Uniform()); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace slackline::simulator
