// Counts answers by their staleness, in a bounded number of buckets.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace slackline {

// Thread-safety: none.
// Buckets:       one for each staleness from 0 to 63, then one from each power of two to the next: [64, 128), [128,
//                256), ... A bucket is named after the smallest staleness in it.
class StalenessCounts {
 public:
  static constexpr size_t kExact = 64;
  static constexpr size_t kBuckets = kExact + 64 - 6;  // 2^6 is the first power

  static constexpr size_t BucketOf(uint64_t staleness) {
    return staleness < kExact ? staleness : kExact + static_cast<size_t>(std::bit_width(staleness)) - 7;
  }
  static constexpr uint64_t StalenessOf(size_t bucket) {
    return bucket < kExact ? bucket : uint64_t{1} << (bucket - kExact + 6);
  }

  void Add(uint64_t staleness) { ++counts_[BucketOf(staleness)]; }
  void Add(const StalenessCounts& other) {
    for (size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  }
  // Returns the counts since `earlier`, whose counts must not be larger.
  StalenessCounts Since(const StalenessCounts& earlier) const {
    StalenessCounts since;
    for (size_t i = 0; i < kBuckets; ++i) since.counts_[i] = counts_[i] - std::min(counts_[i], earlier.counts_[i]);
    return since;
  }
  void AddToBucket(size_t bucket, uint64_t count) { counts_[bucket] += count; }
  uint64_t InBucket(size_t bucket) const { return counts_[bucket]; }
  // Returns the number of buckets up to the last non-empty one.
  size_t used() const {
    size_t used = kBuckets;
    while (used > 0 && counts_[used - 1] == 0) --used;
    return used;
  }

 private:
  std::array<uint64_t, kBuckets> counts_ = {};
};

}  // namespace slackline
