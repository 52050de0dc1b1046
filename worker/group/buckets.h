// The parts in which a group sums a gradient, counted from the end of the flat vector: the order in which backward
// makes them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace slackline::worker {

// In elements, at least 1.
struct BucketSizes {
  // 1 MiB: the sums, and the pushes behind them, begin soon after backward.
  uint64_t first = 256 << 10;
  // 4 MiB: about a shard of a model for which it pays to push early (ADR 32).
  uint64_t each = 1 << 20;
};

// Bucket 0 ends where the vector ends; bounds know no tensors, so that a large tensor is several buckets.
class Buckets {
 public:
  Buckets(uint64_t elements, const BucketSizes& sizes) : elements_(elements), sizes_(sizes) {}

  size_t count() const { return CompleteFrom(0); }
  uint64_t begin(size_t bucket) const {
    const uint64_t behind = sizes_.first + bucket * sizes_.each;
    return elements_ - std::min(elements_, behind);
  }
  uint64_t end(size_t bucket) const { return bucket == 0 ? elements_ : begin(bucket - 1); }
  // How many lie whole in [from, elements).
  size_t CompleteFrom(uint64_t from) const {
    if (from == 0)
      return elements_ == 0 ? 0 : 1 + (elements_ - std::min(elements_, sizes_.first) + sizes_.each - 1) / sizes_.each;
    const uint64_t complete = elements_ - from;
    return complete < sizes_.first ? 0 : 1 + (complete - sizes_.first) / sizes_.each;
  }

 private:
  uint64_t elements_;
  BucketSizes sizes_;
};

}  // namespace slackline::worker
