#include "common/optimizer/schedule.h"

#include <gtest/gtest.h>

#include "common/job/optimizer_config.h"
#include "job.pb.h"
#include "tests/ps/golden_file.h"

namespace slackline::ps::schedule_test {
namespace {

TEST(Schedule, GivesPyTorchsFactors) {
  for (const GoldenCase& golden : ReadGoldenFile("schedule_golden.txt")) {
    ASSERT_GE(golden.rows.size(), 40u) << golden.name;
    for (const GoldenRow& row : golden.rows) {
      EXPECT_NEAR(ScheduleFactor(golden.config.schedule, row.time), row.values[0], 1e-12)
          << golden.name << " after " << row.time << " samples";
    }
  }
}

TEST(Schedule, WarmupStartsAtZeroAndMultipliesTheRest) {
  ScheduleConfig plain{.kind = ScheduleKind::kCosine, .final_fraction = 0.1, .total_samples = 1000};
  ScheduleConfig warm = plain;
  warm.warmup_samples = 100;
  EXPECT_EQ(ScheduleFactor(warm, 0), 0);
  EXPECT_DOUBLE_EQ(ScheduleFactor(warm, 25), 0.25 * ScheduleFactor(plain, 25));
  EXPECT_EQ(ScheduleFactor(warm, 100), ScheduleFactor(plain, 100));
  EXPECT_EQ(ScheduleFactor(warm, 700), ScheduleFactor(plain, 700));
}

TEST(Schedule, LinearScalingRisesFromOneBatchsRateToThatOfAll) {
  const ScheduleConfig warm{.kind = ScheduleKind::kStep, .warmup_samples = 100, .every_samples = 200, .gamma = 0.5};
  // Four batches: from 1 to 4 over 100 samples, then halves of 4.
  EXPECT_EQ(ScaledScheduleFactor(warm, 0, 4), 1);
  EXPECT_EQ(ScaledScheduleFactor(warm, 50, 4), 2.5);
  EXPECT_EQ(ScaledScheduleFactor(warm, 100, 4), 4);
  EXPECT_EQ(ScaledScheduleFactor(warm, 200, 4), 2);
  // One batch is what the rate is meant for, half a one counts half.
  for (const uint64_t samples : {0, 50, 100}) EXPECT_EQ(ScaledScheduleFactor(warm, samples, 1), 1);
  EXPECT_EQ(ScaledScheduleFactor(warm, 50, 0.5), 0.75);
  EXPECT_EQ(ScaledScheduleFactor({}, 0, 4), 4);
}

TEST(Schedule, TheLearningRateIsScaledWhereThatIsAskedFor) {
  OptimizerConfig config{.lr = 0.5, .schedule = {.warmup_samples = 100}};
  EXPECT_EQ(LearningRate(config, 50, 4), 0.25);
  config.scaling = LrScaling::kLinear;
  EXPECT_EQ(LearningRate(config, 50, 4), 0.5 * 2.5);
}

TEST(Schedule, CosineStaysAtItsEnd) {
  const ScheduleConfig config{.kind = ScheduleKind::kCosine, .final_fraction = 0.1, .total_samples = 1000};
  EXPECT_DOUBLE_EQ(ScheduleFactor(config, 1000), 0.1);
  EXPECT_DOUBLE_EQ(ScheduleFactor(config, 5000), 0.1);
}

TEST(Schedule, StepReducesExactlyAtTheBorder) {
  const ScheduleConfig config{.kind = ScheduleKind::kStep, .every_samples = 60, .gamma = 0.5};
  EXPECT_EQ(ScheduleFactor(config, 59), 1);
  EXPECT_EQ(ScheduleFactor(config, 60), 0.5);
  EXPECT_EQ(ScheduleFactor(config, 120), 0.25);
}

TEST(OptimizerConfig, TurnsEpochsOfTheJobIntoSamples) {
  job::Job job;
  job.mutable_training()->set_epochs(5);
  job.mutable_optimizer()->set_kind(job::Optimizer::ADAMW);
  job.mutable_optimizer()->set_lr(0.25);
  job::Schedule& schedule = *job.mutable_optimizer()->mutable_schedule();
  schedule.set_kind(job::Schedule::COSINE);
  schedule.set_warmup_epochs(0.7);
  schedule.set_every_epochs(0.1);
  const OptimizerConfig config = MakeOptimizerConfig(job, 60000);
  EXPECT_EQ(config.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(config.lr, 0.25);
  EXPECT_EQ(config.schedule.kind, ScheduleKind::kCosine);
  EXPECT_EQ(config.schedule.warmup_samples, 42000u);
  EXPECT_EQ(config.schedule.every_samples, 6000u);
  EXPECT_EQ(config.schedule.total_samples, 300000u);
}

TEST(OptimizerConfig, CorrectionsAreTheJobs) {
  using Kind = DelayCompensationConfig::Kind;
  job::Job job;
  EXPECT_EQ(MakeOptimizerConfig(job, 10).delay_compensation.kind, Kind::kNone);
  EXPECT_EQ(MakeOptimizerConfig(job, 10).scaling, LrScaling::kNone);
  EXPECT_EQ(MakeOptimizerConfig(job, 10).momentum_correction, MomentumCorrection::kNone);
  job.mutable_optimizer()->set_scaling(job::LrScaling::LINEAR);
  job.mutable_optimizer()->set_momentum_correction(job::MomentumCorrection::ASYNCHRONY);
  job.mutable_consistency()->set_delay_compensation(job::DelayCompensation::CONSTANT);
  OptimizerConfig config = MakeOptimizerConfig(job, 10);
  EXPECT_EQ(config.scaling, LrScaling::kLinear);
  EXPECT_EQ(config.momentum_correction, MomentumCorrection::kAsynchrony);
  EXPECT_EQ(config.delay_compensation.kind, Kind::kConstant);
  EXPECT_EQ(config.delay_compensation.lambda, 0.04);
  job.mutable_consistency()->set_delay_compensation(job::DelayCompensation::ADAPTIVE);
  config = MakeOptimizerConfig(job, 10);
  EXPECT_EQ(config.delay_compensation.lambda, 2);
  EXPECT_EQ(config.delay_compensation.mean_square, 0.95);
  job.mutable_consistency()->set_dc_lambda(0.5);
  job.mutable_consistency()->set_dc_mean_square(0);
  config = MakeOptimizerConfig(job, 10);
  EXPECT_EQ(config.delay_compensation.lambda, 0.5);
  EXPECT_EQ(config.delay_compensation.mean_square, 0);
}

TEST(OptimizerConfig, TinyIntervalsAreAtLeastOneSample) {
  job::Job job;
  job.mutable_optimizer()->mutable_schedule()->set_every_epochs(1e-6);
  EXPECT_EQ(MakeOptimizerConfig(job, 10).schedule.every_samples, 1u);
  EXPECT_EQ(MakeOptimizerConfig(job, 0).schedule.total_samples, 1u);
}

}  // namespace
}  // namespace slackline::ps::schedule_test
