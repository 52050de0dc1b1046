// Steps that leave out extreme values of their pushes, element by element.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/codec/encode.h"
#include "ps/shard/learning_rates.h"
#include "ps/shard/shard_state.h"

namespace slackline::ps::aggregation_test {
namespace {

using Kind = AggregationConfig::Kind;

// More than a block, and no multiple of any vector's length.
constexpr uint64_t kElements = Slice::kBlockElements + 21, kTrained = kElements - 8;

struct Push {
  std::vector<float> values;
  double norm = 0;
};

std::vector<Push> RandomPushes(size_t number, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<Push> pushes(number);
  for (Push& push : pushes) {
    for (uint64_t i = 0; i < kElements; ++i) push.values.push_back(normal(random));
  }
  // Equal values, too.
  for (Push& push : pushes) push.values[3] = push.values[kElements - 1] = 2;
  return pushes;
}

// Returns the weights after a step with learning rate 1 from 0: minus what the pushes became, and for averaged elements
// that itself.
std::vector<float> Stepped(const std::vector<Push>& pushes, const OptimizerConfig& config,
                           absl::Span<float> mean_out = {}) {
  ShardState shard({.begin = 0, .end = kElements, .trained = kTrained}, config, /*chunk_elements=*/kElements);
  const std::vector<float> zeros(kElements, 0);
  EXPECT_TRUE(shard.Seed(ByteSegments(AsBytes(zeros))).ok());
  std::vector<Contribution> contributions;
  for (const Push& push : pushes) {
    contributions.push_back({.pieces = {{.elements = kElements, .bytes = ByteSegments(AsBytes(push.values))}},
                             .weight = 1.0 / static_cast<double>(pushes.size()),
                             .gradient_norm = push.norm});
  }
  shard.Apply(contributions, {}, mean_out);
  std::vector<float> weights(kElements);
  shard.View().CopyTo(absl::MakeSpan(weights));
  for (uint64_t i = 0; i < kTrained; ++i) weights[i] = -weights[i];
  return weights;
}

OptimizerConfig Robust(const AggregationConfig& aggregation) { return {.lr = 1, .aggregation = aggregation}; }

// The mean of the sorted values without `left_out` at each end.
double Expected(const std::vector<Push>& pushes, uint64_t element, size_t left_out) {
  std::vector<double> values;
  for (const Push& push : pushes) values.push_back(push.values[element]);
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (size_t i = left_out; i < values.size() - left_out; ++i) sum += values[i];
  return sum / static_cast<double>(values.size() - 2 * left_out);
}

TEST(Aggregation, LeavesOutTheExtremesOfEachElement) {
  for (size_t number = 1; number <= 12; ++number) {
    for (const double trim : {0.001, 0.1, 0.25, 0.499}) {
      const AggregationConfig config = {.kind = Kind::kTrimmedMean, .trim = trim};
      const std::vector<Push> pushes = RandomPushes(number, static_cast<uint32_t>(number));
      const std::vector<float> got = Stepped(pushes, Robust(config));
      for (uint64_t i = 0; i < kElements; ++i) {
        ASSERT_NEAR(got[i], Expected(pushes, i, config.LeftOut(number)), 1e-6) << number << " " << trim << " " << i;
      }
    }
  }
}

TEST(Aggregation, TheMedianIsTheMiddle) {
  for (const size_t number : {1, 2, 3, 4, 9, 10}) {
    const std::vector<Push> pushes = RandomPushes(number, 7);
    const std::vector<float> got = Stepped(pushes, Robust({.kind = Kind::kMedian}));
    for (uint64_t i = 0; i < kElements; ++i) {
      ASSERT_NEAR(got[i], Expected(pushes, i, (number - 1) / 2), 1e-6) << number << " " << i;
    }
  }
}

TEST(Aggregation, AtLeastOneOfThreeIsLeftOutAtEachEndAndOneRemains) {
  const auto left_out = [](double trim, size_t pushes) {
    return AggregationConfig{.kind = Kind::kTrimmedMean, .trim = trim}.LeftOut(pushes);
  };
  EXPECT_EQ(left_out(0.1, 2), 0u);
  EXPECT_EQ(left_out(0.1, 3), 1u);
  EXPECT_EQ(left_out(0.1, 10), 1u);
  EXPECT_EQ(left_out(0.1, 11), 2u);
  EXPECT_EQ(left_out(0.1, 30), 3u);
  EXPECT_EQ(left_out(0.499, 4), 1u);
  EXPECT_EQ(left_out(0.499, 200), 99u);
  EXPECT_EQ((AggregationConfig{.kind = Kind::kMean, .trim = 0.3}.LeftOut(100)), 0u);
}

TEST(Aggregation, OneWrongPushOfManyMovesNothingBeyondTheOthers) {
  const std::vector<Push> right = RandomPushes(4, 1);
  for (const float wrong : {-1e30f, 1e30f}) {
    std::vector<Push> pushes = right;
    pushes.insert(pushes.begin() + 2, {std::vector<float>(kElements, wrong)});
    for (const AggregationConfig& config :
         {AggregationConfig{.kind = Kind::kTrimmedMean, .trim = 0.2}, AggregationConfig{.kind = Kind::kMedian}}) {
      const std::vector<float> got = Stepped(pushes, Robust(config));
      for (uint64_t i = 0; i < kElements; ++i) {
        const auto [least, most] =
            std::minmax({right[0].values[i], right[1].values[i], right[2].values[i], right[3].values[i]});
        ASSERT_GE(got[i], least - 1e-6) << i;
        ASSERT_LE(got[i], most + 1e-6) << i;
      }
    }
  }
}

TEST(Aggregation, EachPushIsClippedFirstButItsStatisticsAreNot) {
  std::vector<Push> pushes;
  for (const float value : {1.0f, 2.0f, 8.0f}) pushes.push_back({std::vector<float>(kElements, value), 1});
  pushes[2].norm = 16;  // 8 becomes 1
  OptimizerConfig config = Robust({.kind = Kind::kMedian});
  config.clip_norm = 2;
  const std::vector<float> got = Stepped(pushes, config);
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[kTrained], 2);
}

TEST(Aggregation, LearningRatesAreJoinedInTheSameWay) {
  const std::vector<double> low = {0.1, 1}, middle = {0.2, 2}, high = {1e30, 3}, job = {0.2, 2};
  const std::vector<PushRates> pushes = {{0.25, high}, {0.25, low}, {0.25, middle}, {0.25, {}}};
  const AggregationConfig trimmed = {.kind = Kind::kTrimmedMean, .trim = 0.25};
  EXPECT_THAT(MeanRates(pushes, job, trimmed), testing::ElementsAre(0.2, 2));
  EXPECT_GT(MeanRates(pushes, job)[0], 1e29);
}

TEST(Aggregation, ABackupTakesTheSameStepFromWhatItWas) {
  const OptimizerConfig config = Robust({.kind = Kind::kTrimmedMean, .trim = 0.25});
  std::vector<float> joined(kElements);
  const std::vector<float> got = Stepped(RandomPushes(8, 3), config, absl::MakeSpan(joined));
  EXPECT_EQ(Stepped({{joined}}, config), got);
}

}  // namespace
}  // namespace slackline::ps::aggregation_test
