// Counts the workers at each clock and keeps the smallest clock at hand.
#pragma once

#include <cstddef>
#include <map>

#include "common/base/check.h"
#include "common/base/ids.h"

namespace slackline::ps {

// Number of workers at each clock.
//
// Cost: changes take logarithmic time in the number of different clocks; queries take constant time.
class ClockCounts {
 public:
  void Add(Clock64 clock) {
    ++counts_[clock];
    ++size_;
  }
  // Requires: a worker is at `clock`.
  void Remove(Clock64 clock) {
    const auto found = counts_.find(clock);
    SLACKLINE_CHECK(found != counts_.end());
    if (--found->second == 0) counts_.erase(found);
    --size_;
  }
  void Clear() { *this = ClockCounts(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Requires: !empty().
  Clock64 min() const { return counts_.begin()->first; }

 private:
  std::map<Clock64, size_t> counts_;
  size_t size_ = 0;
};

}  // namespace slackline::ps
