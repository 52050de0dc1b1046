// Mean of the pushes of several batches, weighted by their samples. The result is one push of a larger batch.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace slackline::worker {

// Thread-safety: none.
class PushMean {
 public:
  void Reset() { samples_ = 0; }
  // Adds the push of a batch of `samples` samples. Requires: the same length at each call since Reset().
  void Add(absl::Span<const float> push, uint64_t samples);
  // Writes the mean. Requires: at least one Add() since Reset(), and a span of the same length.
  void Write(absl::Span<float> push) const;

 private:
  uint64_t samples_ = 0;
  std::vector<float> sum_;  // sum of the pushes, each times its samples
};

}  // namespace slackline::worker
