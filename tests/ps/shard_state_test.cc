#include "ps/shard/shard_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "common/codec/encode.h"

namespace slackline::ps::shard_state_test {
namespace {

using ::testing::HasSubstr;

const OptimizerConfig kSgd{.kind = OptimizerKind::kSgd, .lr = 0.5};

absl::Span<const std::byte> Raw(const std::vector<float>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

Contribution Part(const std::vector<float>& values, double weight = 1) {
  return {.pieces = {{.elements = values.size(), .bytes = ByteSegments(Raw(values))}}, .weight = weight};
}

std::vector<float> Weights(const SliceView& view) {
  std::vector<float> values(view.elements());
  view.CopyTo(absl::MakeSpan(values));
  return values;
}

// A shard of zeros whose first `trained` elements descend.
ShardState Shard(uint64_t elements, uint64_t trained, const OptimizerConfig& config = kSgd) {
  ShardState shard({.begin = 0, .end = elements, .trained = trained}, config, /*chunk_elements=*/16);
  const std::vector<float> zeros(elements, 0);
  EXPECT_TRUE(shard.Seed(ByteSegments(Raw(zeros))).ok());
  return shard;
}

std::vector<std::byte> Encoded(const codec::Codec& codec, const std::vector<float>& values) {
  std::vector<std::byte> bytes(codec::EncodedBytesMax(codec, values.size()));
  bytes.resize(codec::Encode(codec, values, absl::MakeSpan(bytes)));
  return bytes;
}

std::vector<float> Decoded(const codec::Codec& codec, const std::vector<std::byte>& bytes, size_t size) {
  std::vector<float> values(size, 0);
  codec::ReturnToResidual(codec, bytes, absl::MakeSpan(values));
  return values;
}

std::vector<float> Ramp(size_t size, float first = 0.1f) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = first + 0.3f * static_cast<float>(i);
  return values;
}

TEST(ShardState, WhatIsFrozenStaysAsItWasSeeded) {
  // 20 trained elements, 4 averaged ones, 30 frozen ones.
  ShardState shard({.begin = 0, .end = 54, .trained = 20, .frozen = 30}, kSgd, /*chunk_elements=*/16);
  const std::vector<float> seed = Ramp(54), push = Ramp(24, 1);
  ASSERT_TRUE(shard.Seed(ByteSegments(Raw(seed))).ok());
  const SliceView before = shard.View();
  shard.Apply({Part(push)}, {});
  const std::vector<float> after = Weights(shard.View());
  for (size_t i = 0; i < 54; ++i) {
    const float expected = i < 20 ? seed[i] - 0.5f * push[i] : i < 24 ? push[i] : seed[i];
    EXPECT_FLOAT_EQ(after[i], expected) << i;
  }
  // A chunk that is frozen as a whole was not copied.
  EXPECT_EQ(shard.View().chunk(2).data(), before.chunk(2).data());
  EXPECT_NE(shard.View().chunk(1).data(), before.chunk(1).data());
}

TEST(ShardState, AveragesWeightsAndStatisticsFromTheFirstOn) {
  OptimizerConfig config = kSgd;
  config.ema = 0.75;
  ShardState shard({.begin = 0, .end = 40, .trained = 20, .frozen = 10}, config, /*chunk_elements=*/16);
  EXPECT_EQ(shard.arrays(), std::vector<std::string>{"ema"});
  const std::vector<float> seed = Ramp(40), push = Ramp(30, 1);
  ASSERT_TRUE(shard.Seed(ByteSegments(Raw(seed))).ok());
  EXPECT_EQ(Weights(shard.AveragedView()), seed);
  shard.Apply({Part(push)}, {});
  const std::vector<float> weights = Weights(shard.View()), averaged = Weights(shard.AveragedView());
  for (size_t i = 0; i < 40; ++i) EXPECT_NEAR(averaged[i], 0.75 * seed[i] + 0.25 * weights[i], 1e-5) << i;

  // It is kept and restored as the weights are.
  const ShardView kept = shard.Snapshot();
  ASSERT_EQ(kept.arrays.size(), 1u);
  ShardState copy({.begin = 0, .end = 40, .trained = 20, .frozen = 10}, config, /*chunk_elements=*/16);
  const auto read = [&](std::optional<size_t> array, uint64_t begin, absl::Span<float> out) {
    const std::vector<float> values = Weights(array ? kept.arrays[*array] : kept.weights);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(begin), out.size(), out.begin());
    return absl::OkStatus();
  };
  ASSERT_TRUE(copy.Restore(kept.progress, read).ok());
  EXPECT_EQ(Weights(copy.AveragedView()), averaged);
  copy.Apply({Part(push)}, {});
  shard.Apply({Part(push)}, {});
  EXPECT_EQ(Weights(copy.AveragedView()), Weights(shard.AveragedView()));
}

TEST(ShardState, WeightedMeanIsTheJoinedBatch) {
  // Means over 1 and 3 samples; their joined batch has the mean (a + 3 b) / 4.
  const std::vector<float> a = Ramp(40), b = Ramp(40, -2);
  std::vector<float> joined(40);
  for (size_t i = 0; i < 40; ++i) joined[i] = (a[i] + 3 * b[i]) / 4;
  ShardState parts = Shard(40, 40), whole = Shard(40, 40);
  parts.Apply({Part(a, 0.25), Part(b, 0.75)}, {.samples = 4});
  whole.Apply({Part(joined)}, {.samples = 4});
  const std::vector<float> got = Weights(parts.View()), want = Weights(whole.View());
  for (size_t i = 0; i < 40; ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
  EXPECT_EQ(parts.samples_applied(), 4u);
}

TEST(ShardState, EncodedPushesStepLikeTheirValues) {
  const size_t size = 2 * codec::kInt8BlockElements + 9, trained = size - 700;
  const std::vector<float> a = Ramp(size), b = Ramp(size, -3);
  for (const char* name : {"fp32", "bf16", "fp16", "int8", "topk:0.2"}) {
    const codec::Codec codec = codec::ParseCodec(name).value();
    ShardState encoded = Shard(size, trained), plain = Shard(size, trained);
    const std::vector<std::byte> bytes_a = Encoded(codec, a), bytes_b = Encoded(codec, b);
    encoded.Apply({{.pieces = {{size, codec, ByteSegments(bytes_a)}}, .weight = 0.25},
                   {.pieces = {{size, codec, ByteSegments(bytes_b)}}, .weight = 0.75}},
                  {.samples = 4});
    plain.Apply({Part(Decoded(codec, bytes_a, size), 0.25), Part(Decoded(codec, bytes_b, size), 0.75)}, {.samples = 4});
    EXPECT_EQ(Weights(encoded.View()), Weights(plain.View())) << name;
  }
}

// Of two contributions whose pieces end in different places, within the kernel's blocks and across them.
TEST(ShardState, PiecesMayBeCutAnywhere) {
  const size_t size = Slice::kBlockElements + 700;
  const std::vector<float> a = Ramp(size), b = Ramp(size, -3);
  ShardState cut = Shard(size, size - 300), plain = Shard(size, size - 300);
  const auto pieces = [](const std::vector<float>& values, const std::vector<size_t>& borders) {
    Contribution part{.pieces = {}, .weight = 0.5};
    size_t begin = 0;
    for (const size_t end : borders) {
      part.pieces.push_back({end - begin, {}, ByteSegments(Raw(values).subspan(4 * begin, 4 * (end - begin)))});
      begin = end;
    }
    return part;
  };
  cut.Apply({pieces(a, {1, 2, 15, 16, 500, size}), pieces(b, {0, 3, Slice::kBlockElements + 1, size - 1, size})}, {});
  plain.Apply({Part(a, 0.5), Part(b, 0.5)}, {});
  EXPECT_EQ(Weights(cut.View()), Weights(plain.View()));
}

TEST(ShardState, WeightsWithALongTailOfBlocksAreSummedEverywhere) {
  const size_t size = 3 * Slice::kBlockElements + 7;
  ShardState shard({.begin = 0, .end = size, .trained = size}, kSgd, /*chunk_elements=*/2 * Slice::kBlockElements);
  const std::vector<float> zeros(size, 0), ones(size, 1), threes(size, 3);
  ASSERT_TRUE(shard.Seed(ByteSegments(Raw(zeros))).ok());
  shard.Apply({Part(ones, 0.5), Part(threes, 0.5)}, {});
  EXPECT_EQ(Weights(shard.View()), std::vector<float>(size, -1));
}

// A shard of Adam with averaged elements, over several chunks, the last of them short.
class KeptShardTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSize = 3 * Slice::kBlockElements + 7;
  static constexpr uint64_t kTrained = kSize - 40;

  static ShardState Make() {
    const OptimizerConfig config{.kind = OptimizerKind::kAdam, .lr = 0.01};
    return ShardState({.begin = 0, .end = kSize, .trained = kTrained}, config, Slice::kBlockElements + 9);
  }
  static void Step(ShardState& shard, int number) {
    std::vector<float> gradient(kSize);
    for (size_t i = 0; i < kSize; ++i) gradient[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(number));
    shard.Apply({Part(gradient)}, {.average_rate = 0.5, .samples = 3, .staleness = 2, .workers = 3});
  }
  static std::vector<float> Values(const SliceView& view) { return Weights(view); }
  static auto ReaderOf(const ShardView& kept) {
    return [&kept](std::optional<size_t> array, uint64_t begin, absl::Span<float> out) {
      const std::vector<float> values = Values(array ? kept.arrays[*array] : kept.weights);
      std::copy_n(values.begin() + static_cast<int64_t>(begin), out.size(), out.begin());
      return absl::OkStatus();
    };
  }
};

TEST_F(KeptShardTest, SnapshotStaysAsItWasWhileStepsGoOn) {
  ShardState shard = Make();
  ASSERT_TRUE(shard.Seed(ByteSegments(Raw(std::vector<float>(kSize, 1)))).ok());
  Step(shard, 1);
  const ShardView kept = shard.Snapshot();
  ASSERT_EQ(kept.arrays.size(), 2u);
  EXPECT_EQ(kept.arrays[0].elements(), kTrained);
  const std::vector<float> weights = Values(kept.weights), mean = Values(kept.arrays[0]),
                           square = Values(kept.arrays[1]);
  for (int number = 2; number < 5; ++number) Step(shard, number);
  EXPECT_EQ(Values(kept.weights), weights);
  EXPECT_EQ(Values(kept.arrays[0]), mean);
  EXPECT_EQ(Values(kept.arrays[1]), square);
  EXPECT_EQ(kept.progress.steps, 1u);
  EXPECT_EQ(kept.progress.samples_applied, 3u);
  EXPECT_NE(Values(shard.Snapshot().arrays[1]), square);
}

TEST_F(KeptShardTest, RestoredShardGoesOnToTheBit) {
  ShardState shard = Make();
  ASSERT_TRUE(shard.Seed(ByteSegments(Raw(std::vector<float>(kSize, 1)))).ok());
  for (int number = 1; number < 4; ++number) Step(shard, number);
  const ShardView kept = shard.Snapshot();
  ShardState other = Make();
  const auto read = ReaderOf(kept);
  ASSERT_EQ(other.Restore(kept.progress, read), absl::OkStatus());
  EXPECT_TRUE(other.seeded());
  EXPECT_TRUE(absl::IsFailedPrecondition(other.Restore(kept.progress, read)));
  for (int number = 4; number < 7; ++number) {
    Step(shard, number);
    Step(other, number);
  }
  EXPECT_EQ(Values(other.View()), Values(shard.View()));
  EXPECT_EQ(other.samples_applied(), shard.samples_applied());
  EXPECT_EQ(other.Snapshot().progress.staleness_mean, shard.Snapshot().progress.staleness_mean);
}

TEST_F(KeptShardTest, PredictsTheWeightsAfterAsManyStepsAsGradientsAreLate) {
  const OptimizerConfig config{.kind = OptimizerKind::kAdam, .lr = 0.01, .ema = 0.5, .predicts = true};
  ShardState shard({.begin = 0, .end = kSize + 5, .trained = kTrained, .frozen = 5}, config, Slice::kBlockElements + 9);
  const std::vector<float> seed(kSize + 5, 1);
  ASSERT_TRUE(shard.Seed(ByteSegments(Raw(seed))).ok());
  EXPECT_EQ(Values(shard.PulledView()), seed);
  EXPECT_EQ(shard.steps_ahead(), 0);
  // Adam's first step is the learning rate, against the gradient's sign. Two more like it are expected.
  Step(shard, 1);
  const SliceView first = shard.PulledView();
  const std::vector<float> weights = Values(shard.View()), predicted = Values(first);
  for (size_t i = 0; i < kTrained; ++i) {
    const float step = std::sin(static_cast<float>(i + 1)) > 0 ? -0.01f : 0.01f;
    ASSERT_NEAR(weights[i], 1 + step, 2e-5) << i;
    ASSERT_NEAR(predicted[i], 1 + 3 * step, 6e-5) << i;
  }
  // Averaged and frozen elements are as they are.
  EXPECT_EQ(std::vector<float>(predicted.begin() + kTrained, predicted.end()),
            std::vector<float>(weights.begin() + kTrained, weights.end()));
  // Two workers have one other push in flight, however late one was.
  ShardState few({.begin = 0, .end = kTrained, .trained = kTrained}, config, kTrained);
  ASSERT_TRUE(few.Seed(ByteSegments(Raw(std::vector<float>(kTrained, 1)))).ok());
  few.Apply({Part(std::vector<float>(kTrained, 5))}, {.staleness = 1000, .workers = 2});
  EXPECT_NEAR(Values(few.PulledView())[0], 1 - 2 * 0.01f, 1e-5);
  EXPECT_EQ(few.steps_ahead(), 1);
  Step(shard, 2);
  EXPECT_EQ(Values(first), predicted) << "a view stays as it was";
  // A shard that predicts nothing learns the same.
  OptimizerConfig plain = config;
  plain.predicts = false;
  ShardState other({.begin = 0, .end = kSize + 5, .trained = kTrained, .frozen = 5}, plain, Slice::kBlockElements + 9);
  ASSERT_TRUE(other.Seed(ByteSegments(Raw(seed))).ok());
  for (int number = 1; number < 3; ++number) Step(other, number);
  EXPECT_EQ(Values(other.View()), Values(shard.View()));
  EXPECT_EQ(Values(other.AveragedView()), Values(shard.AveragedView()));
  EXPECT_EQ(Values(other.PulledView()), Values(other.View()));
  EXPECT_EQ(other.steps_ahead(), 0);
  // A restored shard has no last step.
  ShardState restored({.begin = 0, .end = kSize + 5, .trained = kTrained, .frozen = 5}, config,
                      Slice::kBlockElements + 9);
  const ShardView kept = shard.Snapshot();
  ASSERT_EQ(restored.Restore(kept.progress, ReaderOf(kept)), absl::OkStatus());
  EXPECT_EQ(Values(restored.PulledView()), Values(shard.View()));
}

TEST_F(KeptShardTest, WhatCannotBeReadIsSaid) {
  ShardState shard = Make();
  int reads = 0;
  const auto read = [&](std::optional<size_t>, uint64_t, absl::Span<float>) {
    return ++reads < 3 ? absl::OkStatus() : absl::DataLossError("a block is gone");
  };
  EXPECT_EQ(shard.Restore({}, read), absl::DataLossError("a block is gone"));
  EXPECT_EQ(reads, 3);
  EXPECT_FALSE(shard.seeded());
}

TEST(ShardState, ClipsEachContributionByItsOwnNorm) {
  OptimizerConfig config = kSgd;
  config.clip_norm = 2;
  ShardState shard = Shard(4, 4, config);
  const std::vector<float> large(4, 8), small(4, 1);
  Contribution first = Part(large, 0.5), second = Part(small, 0.5);
  first.gradient_norm = 16;
  second.gradient_norm = 2;
  shard.Apply({first, second}, {});
  // -0.5 x (0.5 x 8 x 2/16 + 0.5 x 1)
  EXPECT_EQ(Weights(shard.View()), std::vector<float>(4, -0.5f));
}

TEST(ShardState, LearningRateScaleTouchesRateAndDecoupledDecayOnly) {
  const OptimizerConfig config{.kind = OptimizerKind::kAdamW, .lr = 0.1, .weight_decay = 0.5, .epsilon = 1e-30};
  ShardState shard({.begin = 0, .end = 1, .trained = 1}, config, 16);
  const std::vector<float> one = {1}, gradient = {0.25f};
  ASSERT_TRUE(shard.Seed(ByteSegments(Raw(one))).ok());
  shard.Apply({Part(gradient)}, {.lr_scale = 0.5});
  // Adam's first step is lr x sign(gradient), whatever scale the gradient has.
  EXPECT_NEAR(Weights(shard.View())[0], (1 - 0.05 * 0.5) - 0.05, 1e-6);
  EXPECT_FLOAT_EQ(shard.Snapshot().arrays[0].chunk(0)[0], 0.1f * 0.25f);
}

TEST(ShardState, AveragedElementsMoveTowardsTheMeanAndAreNotClipped) {
  OptimizerConfig config = kSgd;
  config.clip_norm = 1;
  ShardState shard = Shard(20, 18, config);
  const std::vector<float> ones(20, 1), threes(20, 3);
  Contribution first = Part(ones, 0.5), second = Part(threes, 0.5);
  first.gradient_norm = second.gradient_norm = 100;
  shard.Apply({first, second}, {.average_rate = 0.25});
  const std::vector<float> values = Weights(shard.View());
  EXPECT_FLOAT_EQ(values[17], -0.5f * 0.02f);
  EXPECT_FLOAT_EQ(values[18], 0.5f);
  EXPECT_FLOAT_EQ(values[19], 0.5f);
}

TEST(ShardState, AverageRateOneTakesThePushedValues) {
  ShardState shard = Shard(3, 0);
  const std::vector<float> first = {1e8f, -3, 0.1f}, second = {1, 0.3f, 1e-30f};
  shard.Apply({Part(first)}, {});
  shard.Apply({Part(second)}, {});
  EXPECT_EQ(Weights(shard.View()), second);
}

// The bytes as two segments, cut anywhere, the second one at an odd address.
TEST(ShardState, StraddlingSegmentsGiveTheSameBitsAtEveryCut) {
  const std::vector<float> gradient = Ramp(37);
  const absl::Span<const std::byte> raw = Raw(gradient);
  ShardState whole = Shard(37, 30);
  whole.Apply({Part(gradient)}, {});
  for (size_t cut = 0; cut <= raw.size(); ++cut) {
    const std::vector<std::byte> front(raw.begin(), raw.begin() + static_cast<ptrdiff_t>(cut));
    std::vector<std::byte> back(raw.size() - cut + 1);
    std::copy(raw.begin() + static_cast<ptrdiff_t>(cut), raw.end(), back.begin() + 1);
    ByteSegments bytes(front);
    bytes.Append(absl::MakeConstSpan(back).subspan(1));
    ASSERT_TRUE(CheckFinite(bytes));
    const Contribution part{.pieces = {{.elements = gradient.size(), .bytes = bytes}}};
    ShardState shard = Shard(37, 30);
    shard.Apply({part}, {});
    ASSERT_EQ(Weights(shard.View()), Weights(whole.View())) << "cut at byte " << cut;
  }
}

TEST(ShardState, OneContributionOfWeightOneIsUsedAsItIs) {
  const std::vector<float> gradient = Ramp(37), zeros(37, 0);
  ShardState alone = Shard(37, 37), beside_nothing = Shard(37, 37);
  alone.Apply({Part(gradient)}, {});
  beside_nothing.Apply({Part(gradient, 1), Part(zeros, 0)}, {});
  EXPECT_EQ(Weights(alone.View()), Weights(beside_nothing.View()));
}

TEST(ShardState, ViewsAreUnchangedByLaterSteps) {
  ShardState shard = Shard(40, 40);
  const SliceView before = shard.View();
  const std::vector<float> ones(40, 1);
  shard.Apply({Part(ones)}, {});
  EXPECT_EQ(Weights(before), std::vector<float>(40, 0));
  EXPECT_EQ(Weights(shard.View()), std::vector<float>(40, -0.5f));
}

TEST(ShardState, ScheduleRunsOnSamplesApplied) {
  OptimizerConfig config = kSgd;
  config.schedule = {.kind = ScheduleKind::kStep, .every_samples = 100, .gamma = 0.5};
  ShardState shard = Shard(1, 1, config);
  const std::vector<float> one = {1};
  shard.Apply({Part(one)}, {.samples = 100});
  EXPECT_EQ(shard.learning_rate(), 0.25);
  shard.Apply({Part(one)}, {.samples = 64});
  EXPECT_EQ(Weights(shard.View())[0], -0.75f);
  EXPECT_EQ(shard.samples_applied(), 164u);
}

TEST(ShardState, ShardOfNoElementsTakesItsSteps) {
  ShardState shard = Shard(0, 0);
  shard.Apply({Contribution{}}, {.samples = 8});
  EXPECT_EQ(shard.samples_applied(), 8u);
}

TEST(Seed, RefusesWrongLengthsAndNamesBoth) {
  ShardState shard({.begin = 10, .end = 14, .trained = 4}, kSgd, 16);
  const std::vector<float> three(3, 1);
  const absl::Status status = shard.Seed(ByteSegments(Raw(three)));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("12 bytes"));
  EXPECT_THAT(status.message(), HasSubstr("takes 16"));
  EXPECT_FALSE(shard.seeded());
}

TEST(Seed, RefusesValuesThatAreNotFiniteAndChangesNothing) {
  ShardState shard({.begin = 0, .end = 2, .trained = 2}, kSgd, 16);
  const std::vector<float> bad = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(shard.Seed(ByteSegments(Raw(bad))).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(shard.seeded());
  EXPECT_EQ(Weights(shard.View()), std::vector<float>(2, 0));
}

TEST(Seed, IsTakenOnce) {
  ShardState shard = Shard(2, 2);
  const std::vector<float> again = {1, 2};
  EXPECT_EQ(shard.Seed(ByteSegments(Raw(again))).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Weights(shard.View()), std::vector<float>(2, 0));
}

TEST(CheckFinite, FindsABadValueAtEveryPlaceAndCut) {
  constexpr size_t kSize = 9;
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::signaling_NaN()}) {
    for (size_t place = 0; place < kSize; ++place) {
      std::vector<float> values(kSize, std::numeric_limits<float>::max());
      std::memcpy(&values[place], &bad, sizeof(bad));
      for (size_t cut = 0; cut <= kSize * sizeof(float); ++cut) {
        ByteSegments bytes(Raw(values).first(cut));
        bytes.Append(Raw(values).subspan(cut));
        ASSERT_FALSE(CheckFinite(bytes)) << bad << " at " << place << ", cut at byte " << cut;
      }
    }
  }
}

TEST(CheckFinite, TakesAllFiniteValues) {
  using Limits = std::numeric_limits<float>;
  const std::vector<float> values = {0, -0.0f, Limits::max(), Limits::lowest(), Limits::denorm_min(), Limits::min()};
  EXPECT_TRUE(CheckFinite(ByteSegments(Raw(values))));
  EXPECT_TRUE(CheckFinite(ByteSegments()));
}

TEST(CheckFinite, RefusesPartsOfAFloat) {
  const std::vector<float> values(4, 1);
  EXPECT_FALSE(CheckFinite(ByteSegments(Raw(values).first(15))));
}

}  // namespace
}  // namespace slackline::ps::shard_state_test
