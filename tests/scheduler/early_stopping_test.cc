#include "scheduler/watch/early_stopping.h"

#include <limits>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slackline::scheduler::early_stopping_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// After one epoch each.
std::vector<EvaluationSummary> Measured(const std::vector<std::optional<double>>& accuracies) {
  std::vector<EvaluationSummary> out;
  for (const std::optional<double>& accuracy : accuracies) {
    out.push_back(
        {.epoch = static_cast<uint32_t>(out.size() + 1), .accuracy = accuracy, .loss = 1 - accuracy.value_or(0)});
  }
  return out;
}

job::EarlyStopping Patience(uint32_t patience, double min_delta = 0, uint32_t start_epoch = 1) {
  job::EarlyStopping early;
  early.set_patience(patience);
  early.set_min_delta(min_delta);
  early.set_start_epoch(start_epoch);
  return early;
}

TEST(EarlyStopping, EndsWhenSoManyEvaluationsWereNoBetter) {
  EXPECT_EQ(WhyEarly(Patience(2), Measured({0.5, 0.6, 0.6})), std::nullopt) << "one";
  EXPECT_THAT(WhyEarly(Patience(2), Measured({0.5, 0.6, 0.6, 0.55})),
              Optional(HasSubstr("2 evaluations in a row did not better it: the best is test accuracy 60.00 % after "
                                 "epoch 2")));
  EXPECT_EQ(WhyEarly(Patience(2), Measured({0.5, 0.6, 0.6, 0.7})), std::nullopt) << "a better one begins anew";
  EXPECT_EQ(WhyEarly(Patience(0), Measured({0.5, 0.5, 0.5, 0.5})), std::nullopt) << "off";
  EXPECT_EQ(WhyEarly(Patience(1), {}), std::nullopt);
}

TEST(EarlyStopping, ARunThatGoesOnHasItsPatienceAnew) {
  const std::vector<EvaluationSummary> measured = Measured({0.5, 0.6, 0.6, 0.55, 0.6});
  EXPECT_NE(WhyEarly(Patience(2), measured), std::nullopt);
  EXPECT_EQ(WhyEarly(Patience(2), measured, 4), std::nullopt) << "one";
  EXPECT_NE(WhyEarly(Patience(1), measured, 4), std::nullopt) << "no better than before it went on";
}

TEST(EarlyStopping, SmallGainsAreNone) {
  EXPECT_EQ(WhyEarly(Patience(2, 0.01), Measured({0.5, 0.505, 0.512})), std::nullopt) << "together they are enough";
  EXPECT_NE(WhyEarly(Patience(2, 0.01), Measured({0.5, 0.505, 0.509})), std::nullopt);
}

TEST(EarlyStopping, LessLossIsBetter) {
  job::EarlyStopping early = Patience(1);
  early.set_metric(job::Metric::TEST_LOSS);
  std::vector<EvaluationSummary> measured = Measured({0.5, 0.5});
  measured[1].loss = 0.3;
  EXPECT_EQ(WhyEarly(early, measured), std::nullopt);
  EXPECT_NE(WhyEarly(Patience(1), measured), std::nullopt) << "by accuracy";
  EXPECT_TRUE(LastIsBest(job::Metric::TEST_LOSS, measured));
  EXPECT_FALSE(LastIsBest(job::Metric::TEST_ACCURACY, measured));
}

TEST(EarlyStopping, WhatWasMeasuredIsNamed) {
  EvaluationSummary evaluation = {.epoch = 2, .accuracy = 0.4152, .loss = 0.5, .map = false};
  EXPECT_EQ(Described(job::Metric::TEST_ACCURACY, evaluation), "test accuracy 41.52 %");
  evaluation.map = true;
  EXPECT_EQ(Described(job::Metric::TEST_ACCURACY, evaluation), "test mAP 41.52 %");
  EXPECT_EQ(Described(job::Metric::TEST_ACCURACY, FromState(ToState(evaluation))), "test mAP 41.52 %");
}

TEST(EarlyStopping, EvaluationsWithoutAnAccuracyAreLeftOut) {
  EXPECT_EQ(WhyEarly(Patience(1), Measured({std::nullopt, std::nullopt, std::nullopt})), std::nullopt);
  EXPECT_EQ(WhyEarly(Patience(2), Measured({0.5, std::nullopt, 0.4})), std::nullopt);
  EXPECT_THAT(WhyEarly(Patience(2), Measured({0.5, std::nullopt, 0.4, 0.3})), Optional(HasSubstr("accuracy 50.00 %")));
  EXPECT_FALSE(LastIsBest(job::Metric::TEST_ACCURACY, Measured({std::nullopt})));
  EXPECT_TRUE(LastIsBest(job::Metric::TEST_ACCURACY, Measured({std::nullopt, 0.1})));
  EXPECT_TRUE(LastIsBest(job::Metric::TEST_LOSS, Measured({std::nullopt})));
  job::EarlyStopping by_loss = Patience(1);
  by_loss.set_metric(job::Metric::TEST_LOSS);
  EXPECT_NE(WhyEarly(by_loss, Measured({std::nullopt, std::nullopt})), std::nullopt);
  const EvaluationSummary evaluation = {.epoch = 2, .accuracy = std::nullopt, .loss = 0.031};
  EXPECT_EQ(Described(job::Metric::TEST_ACCURACY, evaluation), "test loss 0.0310");
  EXPECT_EQ(FromState(ToState(evaluation)).accuracy, std::nullopt);
  EXPECT_EQ(FromState(state::MeasuredAccuracy()).accuracy, 0) << "state of an earlier version";
}

TEST(EarlyStopping, SettingsThatCompareAccuraciesAreNamed) {
  job::Job job;
  EXPECT_EQ(WarnOfNoAccuracy(job), std::nullopt);
  job::EarlyStopping& early = *job.mutable_training()->mutable_early_stopping();
  early.set_patience(3);
  EXPECT_EQ(WarnOfNoAccuracy(job),
            "warning: evaluations report no accuracy, and the job sets training.early_stopping.metric: test_accuracy, "
            "so training does not end early; set test_loss there, or let the evaluation return an accuracy");
  job.mutable_checkpoint()->set_keep_best(1);
  EXPECT_THAT(WarnOfNoAccuracy(job),
              Optional(HasSubstr("training.early_stopping.metric: test_accuracy and checkpoint.metric: test_accuracy, "
                                 "so training does not end early and no checkpoint is kept as the best")));
  early.set_metric(job::Metric::TEST_LOSS);
  EXPECT_THAT(WarnOfNoAccuracy(job), Optional(HasSubstr("the job sets checkpoint.metric: test_accuracy, so no")));
  job.mutable_checkpoint()->set_metric(job::Metric::TEST_LOSS);
  EXPECT_EQ(WarnOfNoAccuracy(job), std::nullopt);
}

TEST(EarlyStopping, EpochsBeforeTheFirstDoNotCount) {
  EXPECT_EQ(WhyEarly(Patience(2, 0, 4), Measured({0.9, 0.5, 0.5, 0.5, 0.5})), std::nullopt);
  EXPECT_NE(WhyEarly(Patience(2, 0, 4), Measured({0.9, 0.5, 0.5, 0.5, 0.5, 0.5})), std::nullopt);
}

TEST(EarlyStopping, WhatIsNoNumberIsNeverTheBest) {
  EXPECT_TRUE(LastIsBest(job::Metric::TEST_ACCURACY, Measured({kNoNumber, 0.1})));
  EXPECT_FALSE(LastIsBest(job::Metric::TEST_ACCURACY, Measured({0.1, kNoNumber})));
  EXPECT_FALSE(LastIsBest(job::Metric::TEST_ACCURACY, Measured({kNoNumber})));
  EXPECT_THAT(WhyEarly(Patience(2), Measured({kNoNumber, kNoNumber})), Optional(HasSubstr("none has a number")));
}

}  // namespace
}  // namespace slackline::scheduler::early_stopping_test
