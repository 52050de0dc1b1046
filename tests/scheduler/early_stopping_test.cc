#include "scheduler/watch/early_stopping.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slackline::scheduler::early_stopping_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// After one epoch each.
std::vector<EvaluationSummary> Measured(const std::vector<double>& accuracies) {
  std::vector<EvaluationSummary> out;
  for (const double accuracy : accuracies) {
    out.push_back({.epoch = static_cast<uint32_t>(out.size() + 1), .accuracy = accuracy, .loss = 1 - accuracy});
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
