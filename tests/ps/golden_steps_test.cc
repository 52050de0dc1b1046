// The engine and the numbers together: one weight in each mode and under each correction, worked out by hand. A batch
// has 4 samples, the weight begins at 10, and lr is 1, unless a test says otherwise.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ps/consistency/engine.h"
#include "ps/shard/shard_state.h"
#include "ps/shard/step_arguments.h"

namespace slackline::ps::golden_steps_test {
namespace {

constexpr uint32_t kAlice = 1, kBob = 2, kCarol = 3, kDave = 4;

class GoldenStepsTest : public testing::Test {
 protected:
  void Start(Mode mode, uint32_t workers) {
    engine_config_.mode = mode;
    engine_config_.samples_nominal = 4;
    engine_ = std::make_unique<Engine>(engine_config_);
    std::vector<MemberEntry> members;
    for (uint32_t worker = 1; worker <= workers; ++worker) {
      members.push_back({{WorkerId(worker), Incarnation(worker)}, "somebody"});
    }
    Actions actions;
    ASSERT_TRUE(engine_->SetMembers({Epoch(1), members}, actions).ok());
    shard_ = std::make_unique<ShardState>(ShardExtent{.begin = 0, .end = 1, .trained = 1}, optimizer_, 16);
    const float ten = 10;
    ASSERT_TRUE(shard_->Seed(Bytes(ten)).ok());
    pushes_.clear();
    sequences_.clear();
    past_ = {{0, shard_->View()}};
  }

  struct Given {
    float gradient = 0;
    // The number of the version that it was computed from.
    uint64_t base = 0;
    uint64_t samples = 4;
  };
  // The worker's next push; returns the weight after it. With one parameter the gradient's norm is its size.
  float Push(uint32_t worker, Given given) {
    const Sender sender{WorkerId(worker), Incarnation(worker)};
    const Sequence sequence(++sequences_[worker]);
    pushes_[{sender, sequence}] = given.gradient;
    Actions actions;
    engine_->Push({sender, sequence, {Lineage(1), given.base}, given.samples, absl::UnixEpoch()}, actions);
    for (const Action& action : actions) {
      if (const auto* apply = std::get_if<ApplyAction>(&action)) Apply(*apply);
    }
    return Weight();
  }
  float Weight() const { return shard_->View().chunk(0)[0]; }

  OptimizerConfig optimizer_{.lr = 1};
  EngineConfig engine_config_;

 private:
  static ByteSegments Bytes(const float& value) {
    return ByteSegments({reinterpret_cast<const std::byte*>(&value), sizeof(value)});
  }
  void Apply(const ApplyAction& apply) {
    std::vector<Contribution> contributions;
    for (const ApplyAction::Part& part : apply.parts) {
      const float& gradient = pushes_.at(part.push);
      contributions.push_back({.pieces = {{.elements = 1, .bytes = Bytes(gradient)}},
                               .weight = part.weight,
                               .gradient_norm = std::abs(gradient),
                               .reference = part.staleness > 0 ? past_.at(part.base.number) : SliceView()});
    }
    shard_->Apply(contributions, ArgumentsOf(apply));
    past_[apply.version.number] = shard_->View();
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ShardState> shard_;
  std::map<PushRef, float> pushes_;
  std::map<uint32_t, uint64_t> sequences_;
  std::map<uint64_t, SliceView> past_;
};

TEST_F(GoldenStepsTest, AsyncAndSspTakeAStepForEachPush) {
  for (const Mode mode : {Mode::kAsync, Mode::kSsp}) {
    Start(mode, 2);
    EXPECT_EQ(Push(kAlice, {.gradient = 2}), 8);
    EXPECT_EQ(Push(kBob, {.gradient = 1, .base = 0}), 7);
    // Half a batch: lr 0.5.
    EXPECT_EQ(Push(kBob, {.gradient = 4, .base = 2, .samples = 2}), 5);
  }
}

TEST_F(GoldenStepsTest, AsyncDividesTheLearningRateByStaleness) {
  engine_config_.staleness_lr = StalenessLr::kInverse;
  Start(Mode::kAsync, 2);
  EXPECT_EQ(Push(kAlice, {.gradient = 2}), 8);
  EXPECT_EQ(Push(kAlice, {.gradient = 2, .base = 1}), 6);
  // Two versions old: lr 0.5.
  EXPECT_EQ(Push(kBob, {.gradient = 2, .base = 0}), 5);
}

TEST_F(GoldenStepsTest, BspTakesTheWeightedMeanOfTwoClippedGradients) {
  optimizer_.clip_norm = 2;
  Start(Mode::kBsp, 2);
  EXPECT_EQ(Push(kAlice, {.gradient = 8, .samples = 3}), 10);
  // Alice's 8 is clipped to 2: (3 x 2 + 1 x 1) / 4 = 1.75.
  EXPECT_EQ(Push(kBob, {.gradient = 1, .samples = 1}), 8.25);
}

TEST_F(GoldenStepsTest, AsyncClipsBeforeTheLearningRateIsScaled) {
  optimizer_.clip_norm = 2;
  Start(Mode::kAsync, 2);
  // 8 is clipped to 2, and half a batch has lr 0.5. Were 8 x 0.5 clipped, it would be 8.
  EXPECT_EQ(Push(kAlice, {.gradient = 8, .samples = 2}), 9);
}

TEST_F(GoldenStepsTest, SoftsyncTakesTheMeanOfGroups) {
  engine_config_.softsync_n = 2;
  Start(Mode::kSoftsync, 4);
  EXPECT_EQ(Push(kAlice, {.gradient = 1}), 10);
  EXPECT_EQ(Push(kAlice, {.gradient = 3}), 8);
  EXPECT_EQ(Push(kBob, {.gradient = 2, .samples = 1}), 8);
  // (1 x 2 + 3 x 6) / 4 = 5.
  EXPECT_EQ(Push(kCarol, {.gradient = 6, .samples = 3}), 3);
}

TEST_F(GoldenStepsTest, QuorumTakesTheMeanOfThoseThatAreThereAndDropsTheRest) {
  engine_config_.quorum = 0.75;
  Start(Mode::kQuorum, 4);
  Push(kAlice, {.gradient = 1});
  Push(kBob, {.gradient = 2});
  EXPECT_EQ(Push(kCarol, {.gradient = 3}), 8);
  EXPECT_EQ(Push(kDave, {.gradient = 100}), 8);
}

// From lr to as many times lr as the step has batches, over the warm-up.
TEST_F(GoldenStepsTest, LinearScalingMultipliesTheLearningRateByTheBatchesOfTheStep) {
  optimizer_.scaling = LrScaling::kLinear;
  optimizer_.schedule.warmup_samples = 16;
  Start(Mode::kBsp, 2);
  Push(kAlice, {.gradient = 1});
  EXPECT_EQ(Push(kBob, {.gradient = 1}), 9) << "lr 1: nothing applied yet";
  Push(kAlice, {.gradient = 1, .base = 1});
  EXPECT_EQ(Push(kBob, {.gradient = 1, .base = 1}), 7.5) << "8 of 16 samples: half way from 1 to 2";
  Push(kAlice, {.gradient = 1, .base = 2});
  EXPECT_EQ(Push(kBob, {.gradient = 1, .base = 2}), 5.5) << "2";
  // A batch and a half, of which the mean counts two thirds and one third: lr 1.5.
  Push(kAlice, {.gradient = 1, .base = 3, .samples = 4});
  EXPECT_EQ(Push(kBob, {.gradient = 1, .base = 3, .samples = 2}), 4);
}

TEST_F(GoldenStepsTest, LinearScalingOfSoftsyncAndQuorumGoesByThePushesOfTheStep) {
  optimizer_.scaling = LrScaling::kLinear;
  engine_config_.weighting = Weighting::kUniform;
  engine_config_.softsync_n = 2;
  engine_config_.quorum = 0.75;
  Start(Mode::kSoftsync, 4);
  Push(kAlice, {.gradient = 1});
  EXPECT_EQ(Push(kBob, {.gradient = 1, .samples = 1}), 8) << "two";
  Start(Mode::kQuorum, 4);
  Push(kAlice, {.gradient = 1});
  Push(kBob, {.gradient = 1});
  EXPECT_EQ(Push(kCarol, {.gradient = 1}), 7) << "three";
}

TEST_F(GoldenStepsTest, LinearScalingLeavesASinglePushAlone) {
  optimizer_.scaling = LrScaling::kLinear;
  optimizer_.schedule.warmup_samples = 16;
  for (const Mode mode : {Mode::kAsync, Mode::kSsp}) {
    Start(mode, 2);
    EXPECT_EQ(Push(kAlice, {.gradient = 1}), 9);
    EXPECT_EQ(Push(kAlice, {.gradient = 1, .base = 1, .samples = 2}), 8.5);
  }
}

TEST_F(GoldenStepsTest, DelayCompensationOfAsyncAndSsp) {
  optimizer_.delay_compensation = {.kind = DelayCompensationConfig::Kind::kConstant, .lambda = 0.5};
  for (const Mode mode : {Mode::kAsync, Mode::kSsp}) {
    Start(mode, 2);
    EXPECT_EQ(Push(kAlice, {.gradient = 4}), 6);
    // 2 + 0.5 x 4 x (6 - 10) = -6.
    EXPECT_EQ(Push(kBob, {.gradient = 2}), 12);
    // 1 + 0.5 x (12 - 6) = 4, half a batch: lr 0.5.
    EXPECT_EQ(Push(kBob, {.gradient = 1, .base = 1, .samples = 2}), 10);
  }
}

TEST_F(GoldenStepsTest, DelayCompensationOfSoftsync) {
  optimizer_.delay_compensation = {.kind = DelayCompensationConfig::Kind::kConstant, .lambda = 0.5};
  Start(Mode::kSoftsync, 2);
  Push(kAlice, {.gradient = 1});
  EXPECT_EQ(Push(kBob, {.gradient = 3}), 8);
  // 2 + 0.5 x 4 x (8 - 10) = -2, and 4: their mean is 1.
  Push(kAlice, {.gradient = 2, .base = 0});
  EXPECT_EQ(Push(kBob, {.gradient = 4, .base = 1}), 7);
}

TEST_F(GoldenStepsTest, MomentumIsCorrectedByTheStalenessThatTheEngineSaw) {
  optimizer_.momentum = 0.75;
  optimizer_.momentum_correction = MomentumCorrection::kAsynchrony;
  Start(Mode::kAsync, 2);
  // Staleness 0, then 0: buffers 4 and 0.75 x 4 + 4 = 7.
  EXPECT_EQ(Push(kAlice, {.gradient = 4}), 6);
  EXPECT_EQ(Push(kAlice, {.gradient = 4, .base = 1}), -1);
  // Stalenesses 2 and 3 take the mean to 2/3 and 5/4, which are momentum 2/5 and 5/9. Buffers 7 x (3/4 - 2/5) = 2.45
  // and 2.45 x (3/4 - 5/9) = 0.4763889.
  EXPECT_NEAR(Push(kBob, {.gradient = 0, .base = 0}), -3.45, 1e-5);
  EXPECT_NEAR(Push(kBob, {.gradient = 0, .base = 0}), -3.9263889, 1e-5);
}

// --- Local training: a push is the weight that the worker began with, less the one it ended with -----------------

TEST_F(GoldenStepsTest, DifferencesInBspMakeTheMeanOfTheWorkersWeights) {
  Start(Mode::kBsp, 2);
  Push(kAlice, {.gradient = 4, .samples = 12});  // ended at 6
  EXPECT_EQ(Push(kBob, {.gradient = -4, .samples = 4}), (12 * 6.0f + 4 * 14) / 16);
  engine_config_.weighting = Weighting::kUniform;
  Start(Mode::kBsp, 2);
  Push(kAlice, {.gradient = 4, .samples = 12});
  EXPECT_EQ(Push(kBob, {.gradient = -4, .samples = 4}), 10);
}

TEST_F(GoldenStepsTest, DifferencesInAQuorumMakeTheMeanOfThoseThatAreThere) {
  engine_config_.quorum = 0.6;
  Start(Mode::kQuorum, 3);
  Push(kAlice, {.gradient = 4, .samples = 12});
  EXPECT_EQ(Push(kBob, {.gradient = -4, .samples = 4}), 8);
  EXPECT_EQ(Push(kCarol, {.gradient = 100}), 8) << "late";
}

}  // namespace
}  // namespace slackline::ps::golden_steps_test
