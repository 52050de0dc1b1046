// Detects norms that are far above the norms before them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace slackline::ps {

// Median of the last kRecent norms. Pure.
class NormMedian {
 public:
  static constexpr size_t kRecent = 31;
  // Number of norms below which no norm counts as far above.
  static constexpr size_t kLeast = 5;

  void Add(double norm) { recent_[count_++ % kRecent] = norm; }
  // Returns true if `norm` is above `factor` times the median (of an even number of norms, the upper of the two in the
  // middle). Returns false if the median is 0.
  bool FarAbove(double norm, double factor) const {
    if (count_ < kLeast) return false;
    const size_t count = std::min(count_, kRecent);
    std::array<double, kRecent> norms = recent_;
    std::nth_element(norms.begin(), norms.begin() + count / 2, norms.begin() + count);
    return norms[count / 2] > 0 && norm > factor * norms[count / 2];
  }

 private:
  std::array<double, kRecent> recent_ = {};  // ring buffer
  size_t count_ = 0;
};

}  // namespace slackline::ps
