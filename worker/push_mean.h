// The mean of what several batches would push, weighted by their samples: one push of a larger batch.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace slackline::worker {

// Thread-safety: none.
class PushMean {
 public:
  void Reset() { samples_ = 0; }
  // Requires: the same length each time since Reset().
  void Add(absl::Span<const float> push, uint64_t samples);
  // Requires: something was added; the length of what was.
  void Write(absl::Span<float> push) const;

 private:
  uint64_t samples_ = 0;
  std::vector<float> sum_;  // each times its samples
};

}  // namespace slackline::worker
