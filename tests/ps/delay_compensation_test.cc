// Delay compensation of one shard, worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ps/shard/shard_state.h"

namespace slackline::ps::delay_compensation_test {
namespace {

using Kind = DelayCompensationConfig::Kind;

absl::Span<const std::byte> Raw(const std::vector<float>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

// Of values that outlive it.
Contribution Part(const std::vector<float>& values, SliceView reference = {}, double weight = 1) {
  return {.pieces = {{.elements = values.size(), .bytes = ByteSegments(Raw(values))}},
          .weight = weight,
          .reference = std::move(reference)};
}

std::vector<float> Weights(const ShardState& shard) {
  std::vector<float> values(shard.extent().size());
  shard.View().CopyTo(absl::MakeSpan(values));
  return values;
}

// SGD with lr 0.5, and lambda 2.
ShardState Shard(Kind kind, const std::vector<float>& weights, uint64_t trained, double clip_norm = 0) {
  const OptimizerConfig config{
      .lr = 0.5, .clip_norm = clip_norm, .delay_compensation = {.kind = kind, .lambda = 2, .mean_square = 0.75}};
  ShardState shard({.begin = 0, .end = weights.size(), .trained = trained}, config, /*chunk_elements=*/16);
  EXPECT_TRUE(shard.Seed(ByteSegments(Raw(weights))).ok());
  return shard;
}

TEST(DelayCompensation, AddsLambdaSquareOfTheGradientTimesWhatHasChanged) {
  ShardState shard = Shard(Kind::kConstant, {10}, 1);
  const SliceView ten = shard.View();
  const std::vector<float> four = {4}, one = {1};
  // Alice: 10 - 0.5 x 4 = 8.
  shard.Apply({Part(four)}, {});
  EXPECT_EQ(Weights(shard)[0], 8);
  // Bob, from 10 too: 1 + 2 x 1 x 1 x (8 - 10) = -3; 8 + 0.5 x 3 = 9.5.
  shard.Apply({Part(one, ten)}, {});
  EXPECT_EQ(Weights(shard)[0], 9.5);
  // The same where the version is gone: 9.5 - 0.5.
  shard.Apply({Part(one)}, {});
  EXPECT_EQ(Weights(shard)[0], 9);
  // -1 + 2 x (-1) x (-1) x (9 - 10) = -3; 9 + 1.5, of which lr_scale leaves a third.
  const std::vector<float> minus = {-1};
  shard.Apply({Part(minus, ten)}, {.lr_scale = 1.0 / 3});
  EXPECT_FLOAT_EQ(Weights(shard)[0], 9.5);
}

TEST(DelayCompensation, ComesAfterClippingAndBeforeTheMean) {
  ShardState shard = Shard(Kind::kConstant, {10}, 1, /*clip_norm=*/1);
  const SliceView ten = shard.View();
  const std::vector<float> four = {4}, one = {1};
  shard.Apply({Part(four)}, {});
  EXPECT_EQ(Weights(shard)[0], 8);
  // Bob's 4 has norm 4 and is clipped to 1, which becomes -3 as above. Carol's 1 is of now. Their mean, three to one:
  // 0.75 x (-3) + 0.25 x 1 = -2; 8 + 0.5 x 2 = 9.
  Contribution bob = Part(four, ten, 0.75);
  bob.gradient_norm = 4;
  shard.Apply({bob, Part(one, {}, 0.25)}, {});
  EXPECT_EQ(Weights(shard)[0], 9);
}

TEST(DelayCompensation, AdaptiveDividesLambdaByTheRootOfTheMeanSquare) {
  ShardState shard = Shard(Kind::kAdaptive, {10}, 1);
  const SliceView ten = shard.View();
  const std::vector<float> four = {4}, two = {2};
  // The mean square becomes 0.25 x 16 = 4; nothing has changed, so 4 it is, and 10 - 2 = 8.
  shard.Apply({Part(four)}, {});
  EXPECT_EQ(Weights(shard)[0], 8);
  EXPECT_EQ(shard.Snapshot().arrays[0].chunk(0)[0], 4);
  EXPECT_EQ(shard.optimizer().arrays()[0], "dc_mean_square");
  // 0.75 x 4 + 0.25 x 4 = 4, so lambda is 2 / 2 = 1: 2 + 1 x 4 x (8 - 10) = -6; 8 + 3 = 11.
  shard.Apply({Part(two, ten)}, {});
  EXPECT_NEAR(Weights(shard)[0], 11, 1e-5);
  EXPECT_EQ(shard.Snapshot().arrays[0].chunk(0)[0], 4);
}

TEST(DelayCompensation, AveragedElementsAreNotCompensated) {
  ShardState shard = Shard(Kind::kConstant, {10, 10}, 1);
  const SliceView ten = shard.View();
  const std::vector<float> four = {4, 4}, one = {1, 1};
  shard.Apply({Part(four)}, {.average_rate = 0.5});
  EXPECT_EQ(Weights(shard), std::vector<float>({8, 7}));
  shard.Apply({Part(one, ten)}, {.average_rate = 0.5});
  EXPECT_EQ(Weights(shard), std::vector<float>({9.5, 4}));
}

TEST(DelayCompensation, EveryBlockHasItsOwnPartOfTheReference) {
  const size_t size = 3 * Slice::kBlockElements + 7;
  std::vector<float> before(size), push(size), want(size);
  for (size_t i = 0; i < size; ++i) before[i] = 0.01f * static_cast<float>(i % 97);
  const OptimizerConfig config{.lr = 1, .delay_compensation = {.kind = Kind::kConstant, .lambda = 0.5}};
  ShardState shard({.begin = 0, .end = size, .trained = size - 3}, config, 2 * Slice::kBlockElements);
  ASSERT_TRUE(shard.Seed(ByteSegments(Raw(before))).ok());
  const SliceView reference = shard.View();
  for (size_t i = 0; i < size; ++i) push[i] = 0.1f * static_cast<float>(i % 13) - 0.5f;
  shard.Apply({Part(push)}, {});
  const std::vector<float> now = Weights(shard);
  for (size_t i = 0; i < size; ++i) {
    const float change = now[i] - before[i];
    want[i] = i < size - 3 ? now[i] - (push[i] + 0.5f * push[i] * push[i] * change) : push[i];
  }
  shard.Apply({Part(push, reference)}, {});
  const std::vector<float> got = Weights(shard);
  for (size_t i = 0; i < size; ++i) ASSERT_NEAR(got[i], want[i], 1e-6) << i;
}

TEST(DelayCompensation, LargeGradientsOfNowStayFinite) {
  for (const Kind kind : {Kind::kConstant, Kind::kAdaptive}) {
    ShardState shard = Shard(kind, {0}, 1);
    const SliceView same = shard.View();
    const std::vector<float> large = {1e30f};
    shard.Apply({Part(large, same)}, {});
    EXPECT_EQ(Weights(shard)[0], -0.5f * 1e30f);
  }
}

}  // namespace
}  // namespace slackline::ps::delay_compensation_test
