// Buckets: the parts in which a group sums a gradient. They are counted from the end of the flat vector, since backward
// produces the gradient in that order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace slackline::worker {

// Sizes in elements, at least 1.
struct BucketSizes {
  // Size of the first bucket: 1 MiB. Small, so that sums and pushes begin soon after backward starts.
  uint64_t first = 256 << 10;
  // Size of each further bucket: 4 MiB, about the size of a shard in a model for which early pushes are useful (ADR
  // 32).
  uint64_t each = 1 << 20;
};

// Buckets computes the bounds of buckets. Bucket 0 ends at the vector's end. Bounds ignore tensors, so that a large
// tensor spans several buckets.
class Buckets {
 public:
  Buckets(uint64_t elements, const BucketSizes& sizes) : elements_(elements), sizes_(sizes) {}

  size_t count() const { return CompleteFrom(0); }
  uint64_t begin(size_t bucket) const {
    const uint64_t behind = sizes_.first + bucket * sizes_.each;
    return elements_ - std::min(elements_, behind);
  }
  uint64_t end(size_t bucket) const { return bucket == 0 ? elements_ : begin(bucket - 1); }
  // Returns the number of buckets that lie completely in [from, elements).
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
