// Random numbers that are the same on every platform.
#pragma once

#include <cstdint>
#include <limits>

namespace slackline {

// SplitMix64 is a random number generator (Steele, Lea and Flood 2014).
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Returns a uniform number in [0, bound). There is no bias as of a plain remainder: values in the incomplete last
  // round are drawn again.
  uint64_t Below(uint64_t bound) {
    const uint64_t incomplete = (std::numeric_limits<uint64_t>::max() - bound + 1) % bound;
    uint64_t value = Next();
    while (value < incomplete) value = Next();
    return value % bound;
  }

 private:
  uint64_t state_;
};

}  // namespace slackline
