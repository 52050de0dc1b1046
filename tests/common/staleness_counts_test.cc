#include "common/base/staleness_counts.h"

#include <limits>

#include <gtest/gtest.h>

namespace slackline::staleness_counts_test {
namespace {

TEST(StalenessCounts, SmallOnesAreExactAndLargeOnesShareBucketsByPowersOfTwo) {
  for (uint64_t staleness = 0; staleness < 64; ++staleness) {
    EXPECT_EQ(StalenessCounts::StalenessOf(StalenessCounts::BucketOf(staleness)), staleness);
  }
  EXPECT_EQ(StalenessCounts::BucketOf(64), 64u);
  EXPECT_EQ(StalenessCounts::BucketOf(127), 64u);
  EXPECT_EQ(StalenessCounts::BucketOf(128), 65u);
  EXPECT_EQ(StalenessCounts::StalenessOf(65), 128u);
}

TEST(StalenessCounts, LargestNumberHasABucket) {
  const uint64_t largest = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(StalenessCounts::BucketOf(largest), StalenessCounts::kBuckets - 1);
  EXPECT_EQ(StalenessCounts::StalenessOf(StalenessCounts::kBuckets - 1), uint64_t{1} << 63);
}

TEST(StalenessCounts, SumsBucketByBucket) {
  StalenessCounts counts, others;
  EXPECT_EQ(counts.used(), 0u);
  counts.Add(3);
  others.Add(3);
  others.Add(70);
  counts.Add(others);
  EXPECT_EQ(counts.InBucket(3), 2u);
  EXPECT_EQ(counts.InBucket(64), 1u);
  EXPECT_EQ(counts.used(), 65u);
}

}  // namespace
}  // namespace slackline::staleness_counts_test
