// Which norms are far above those that came before.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace slackline::ps {

// The median of the last norms. Pure.
class NormMedian {
 public:
  static constexpr size_t kRecent = 31;
  // With fewer nothing is far above.
  static constexpr size_t kLeast = 5;

  void Add(double norm) { recent_[count_++ % kRecent] = norm; }
  // Above `factor` times the median (of an even number the upper of both in the middle). A median of 0 tells nothing.
  bool FarAbove(double norm, double factor) const {
    if (count_ < kLeast) return false;
    const size_t count = std::min(count_, kRecent);
    std::array<double, kRecent> norms = recent_;
    std::nth_element(norms.begin(), norms.begin() + count / 2, norms.begin() + count);
    return norms[count / 2] > 0 && norm > factor * norms[count / 2];
  }

 private:
  std::array<double, kRecent> recent_ = {};  // a ring
  size_t count_ = 0;
};

}  // namespace slackline::ps
