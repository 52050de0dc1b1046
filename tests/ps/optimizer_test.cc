#include "common/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ps/shard/shard_state.h"
#include "tests/ps/golden_file.h"

namespace slackline::ps::optimizer_test {
namespace {

constexpr int kElements = 37;

// The formulas of make_optimizer_golden.py; Python's % is never negative, and neither are these operands.
float Weight(int i) { return static_cast<float>((i * 7919) % 1021 - 510) / 256; }
float Gradient(int step, int i) {
  return static_cast<float>((step * 104729 + i * 7919 + step * step * i) % 2003 - 1001) / 1024;
}

ByteSegments Bytes(const std::vector<float>& values) {
  return ByteSegments({reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)});
}

std::vector<float> Gradients(int step) {
  std::vector<float> values;
  for (int i = 0; i < kElements; ++i) values.push_back(Gradient(step, i));
  return values;
}

double Norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

ShardState SeededShard(const OptimizerConfig& config) {
  std::vector<float> weights;
  for (int i = 0; i < kElements; ++i) weights.push_back(Weight(i));
  // Chunks much smaller than the shard, so that steps cross their borders.
  ShardState shard({.begin = 0, .end = kElements, .trained = kElements}, config, /*chunk_elements=*/16);
  EXPECT_TRUE(shard.Seed(Bytes(weights)).ok());
  return shard;
}

void Step(int step, ShardState& shard) {
  const std::vector<float> gradient = Gradients(step);
  const Contribution part{.pieces = {{.elements = gradient.size(), .bytes = Bytes(gradient)}},
                          .weight = 1,
                          .gradient_norm = Norm(gradient)};
  shard.Apply({part}, {.samples = 1});
}

// Within 1e-6 of the value, or of 1 where the value has come closer to 0 than that: a weight that passes 0 keeps
// the rounding of its way there.
void ExpectClose(const std::vector<float>& values, const GoldenRow& row, const std::string& name) {
  ASSERT_EQ(values.size(), row.values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], row.values[i], 1e-6 * std::max(std::abs(row.values[i]), 1.0))
        << name << ", element " << i << ", step " << row.time;
  }
}

TEST(Optimizer, GivesPyTorchsWeightsOver100Steps) {
  const std::vector<GoldenCase> cases = ReadGoldenFile("optimizer_golden.txt");
  EXPECT_EQ(cases.size(), 11u);
  for (const GoldenCase& golden : cases) {
    ShardState shard = SeededShard(golden.config);
    int step = 0;
    for (const GoldenRow& row : golden.rows) {
      while (static_cast<uint64_t>(step) < row.time) Step(++step, shard);
      std::vector<float> values(kElements);
      shard.View().CopyTo(absl::MakeSpan(values));
      ExpectClose(values, row, golden.name);
    }
    EXPECT_EQ(step, 100) << golden.name;
  }
}

// As GROUPS of make_optimizer_golden.py has them.
ShardState GroupedShard(OptimizerConfig config) {
  config.groups = {{.lr_factor = 10, .weight_decay = 0}, {.lr_factor = 0.1, .weight_decay = 0.2}};
  const std::vector<GroupRun> runs = {{10, std::nullopt}, {13, 0}, {25, 1}};
  std::vector<float> weights;
  for (int i = 0; i < kElements; ++i) weights.push_back(Weight(i));
  ShardState shard({.begin = 0, .end = kElements, .trained = kElements}, config, runs, /*chunk_elements=*/8);
  EXPECT_TRUE(shard.Seed(Bytes(weights)).ok());
  return shard;
}

TEST(Optimizer, GivesPyTorchsWeightsWithGroupsAndTheirAverages) {
  const std::vector<GoldenCase> cases = ReadGoldenFile("groups_golden.txt");
  EXPECT_EQ(cases.size(), 7u);
  for (const GoldenCase& golden : cases) {
    ShardState shard = GroupedShard(golden.config);
    EXPECT_EQ(shard.averages(), golden.config.ema > 0);
    int step = 0;
    for (const GoldenRow& row : golden.rows) {
      while (static_cast<uint64_t>(step) < row.time) Step(++step, shard);
      std::vector<float> values(kElements);
      (shard.averages() ? shard.AveragedView() : shard.View()).CopyTo(absl::MakeSpan(values));
      ExpectClose(values, row, golden.name);
    }
    EXPECT_EQ(step, 100) << golden.name;
  }
}

TEST(Optimizer, GroupsThatChangeNothingGiveTheSameBits) {
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdamW}) {
    OptimizerConfig config{.kind = kind, .lr = 0.01, .momentum = 0.9, .weight_decay = 0.05};
    ShardState plain = SeededShard(config);
    config.groups = {{.lr_factor = 1, .weight_decay = 0.05}};
    std::vector<float> weights(kElements);
    plain.View().CopyTo(absl::MakeSpan(weights));
    ShardState grouped({.begin = 0, .end = kElements, .trained = kElements}, config,
                       {{3, 0}, {21, std::nullopt}, {36, 0}}, 16);
    ASSERT_TRUE(grouped.Seed(Bytes(weights)).ok());
    for (int step = 1; step <= 5; ++step) {
      Step(step, plain);
      Step(step, grouped);
    }
    std::vector<float> others(kElements);
    plain.View().CopyTo(absl::MakeSpan(weights));
    grouped.View().CopyTo(absl::MakeSpan(others));
    EXPECT_EQ(weights, others);
  }
}

OptimizerConfig Config(OptimizerKind kind, double momentum) { return {.kind = kind, .momentum = momentum}; }

TEST(Optimizer, KeepsTheArraysOfItsKindUnderPyTorchsNames) {
  EXPECT_EQ(OptimizerState(Config(OptimizerKind::kSgd, 0), 5).arrays(), 0u);
  const OptimizerState momentum(Config(OptimizerKind::kSgd, 0.9), 5);
  ASSERT_EQ(momentum.arrays(), 1u);
  EXPECT_EQ(momentum.optimizer().arrays()[0], "momentum_buffer");
  const OptimizerState adam(Config(OptimizerKind::kAdamW, 0), 5);
  ASSERT_EQ(adam.arrays(), 2u);
  EXPECT_EQ(adam.optimizer().arrays()[1], "exp_avg_sq");
  EXPECT_EQ(adam.array(1).size(), 5u);
}

TEST(Optimizer, ContinuesToTheBitFromACopiedState) {
  const OptimizerConfig config{.kind = OptimizerKind::kAdam, .lr = 0.01};
  OptimizerState original(config, kElements);
  std::vector<float> weights(kElements, 1);
  const auto take = [](OptimizerState& state, int step, std::vector<float>& to) {
    state.BeginStep({.lr = 0.01, .staleness = 3});
    state.StepBlock(0, Gradients(step), absl::MakeSpan(to));
  };
  take(original, 1, weights);

  OptimizerState copy(config, kElements);
  std::vector<float> copied_weights = weights;
  copy.optimizer().set_steps(original.optimizer().steps());
  copy.optimizer().set_staleness_mean(original.optimizer().staleness_mean());
  for (size_t i = 0; i < copy.arrays(); ++i) {
    std::copy(original.array(i).begin(), original.array(i).end(), copy.mutable_array(i).begin());
  }
  take(original, 2, weights);
  take(copy, 2, copied_weights);
  EXPECT_EQ(copied_weights, weights);
  EXPECT_EQ(copy.optimizer().staleness_mean(), original.optimizer().staleness_mean());
}

// Takes a step of gradient 4 with lr 1, and returns the weight after it.
float StepOf4(OptimizerState& state, double staleness, std::vector<float>& weight) {
  const std::vector<float> gradient = {4};
  state.BeginStep({.lr = 1, .staleness = staleness});
  state.StepBlock(0, gradient, absl::MakeSpan(weight));
  return weight[0];
}

TEST(Optimizer, MomentumIsLoweredByWhatAsynchronyAdds) {
  OptimizerConfig config = Config(OptimizerKind::kSgd, 0.75);
  config.momentum_correction = MomentumCorrection::kAsynchrony;
  OptimizerState state(config, 1);
  std::vector<float> weight = {10};
  // Mean staleness 0: momentum 0.75, buffer 4.
  EXPECT_EQ(StepOf4(state, 0, weight), 6);
  // Mean (0 + 2) / 2 = 1, which is momentum 1/2: 1/4 is left. Buffer 4/4 + 4 = 5.
  EXPECT_EQ(StepOf4(state, 2, weight), 1);
  EXPECT_EQ(state.optimizer().momentum(), 0.25);
  // Mean (0 + 2 + 7) / 3 = 3, which is momentum 3/4: nothing is left. Buffer 4.
  EXPECT_EQ(StepOf4(state, 7, weight), -3);
  EXPECT_EQ(state.optimizer().momentum(), 0);
  // Mean (9 + 11) / 4 = 5, which is more than that: 0 it stays.
  EXPECT_EQ(StepOf4(state, 11, weight), -7);
  // The same steps without the correction: buffers 4, 7, 9.25, 10.9375.
  OptimizerState plain(Config(OptimizerKind::kSgd, 0.75), 1);
  std::vector<float> other = {10};
  for (const double staleness : {0, 2, 7, 11}) StepOf4(plain, staleness, other);
  EXPECT_EQ(other[0], 10 - 4 - 7 - 9.25 - 10.9375);
}

TEST(Optimizer, TheMeanStalenessRunsOverTheLastSteps) {
  OptimizerState state(Config(OptimizerKind::kSgd, 0), 1);
  std::vector<float> weight = {0};
  for (uint64_t i = 0; i < Optimizer::kStalenessSteps; ++i) StepOf4(state, i % 2 == 0 ? 1 : 3, weight);
  EXPECT_DOUBLE_EQ(state.optimizer().staleness_mean(), 2);
  StepOf4(state, 102, weight);
  EXPECT_DOUBLE_EQ(state.optimizer().staleness_mean(), 3);
  for (int i = 0; i < 2000; ++i) StepOf4(state, 7, weight);
  EXPECT_NEAR(state.optimizer().staleness_mean(), 7, 1e-6);
}

}  // namespace
}  // namespace slackline::ps::optimizer_test
