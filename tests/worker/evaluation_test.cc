#include "worker/evaluation/evaluation.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace slackline::worker::evaluation_test {
namespace {

// Labels      0 0 0 0 1 1 2 2 2 2
// Predictions 0 0 1 2 1 0 2 2 2 0
TEST(Evaluation, FiguresEqualThoseDoneByHand) {
  ConfusionMatrix matrix(3);
  matrix.Add({0, 0, 0, 0, 1}, {0, 0, 1, 2, 1});
  matrix.Add({1, 2, 2, 2, 2}, {0, 2, 2, 2, 0});
  EXPECT_EQ(matrix.count(0, 0), 2u);
  EXPECT_EQ(matrix.count(2, 0), 1u);
  EXPECT_EQ(matrix.count(0, 2), 1u);

  const EvaluationMetrics metrics = matrix.ToMetrics();
  EXPECT_EQ(metrics.samples, 10u);
  EXPECT_DOUBLE_EQ(metrics.accuracy.value_or(-1), 0.6);
  EXPECT_EQ(metrics.classes[0].samples, 4u);
  EXPECT_DOUBLE_EQ(metrics.classes[0].precision, 2.0 / 4);
  EXPECT_DOUBLE_EQ(metrics.classes[0].recall, 2.0 / 4);
  EXPECT_DOUBLE_EQ(metrics.classes[0].f1, 0.5);
  EXPECT_DOUBLE_EQ(metrics.classes[1].precision, 1.0 / 2);
  EXPECT_DOUBLE_EQ(metrics.classes[1].recall, 1.0 / 2);
  EXPECT_DOUBLE_EQ(metrics.classes[2].precision, 3.0 / 4);
  EXPECT_DOUBLE_EQ(metrics.classes[2].recall, 3.0 / 4);
  EXPECT_DOUBLE_EQ(metrics.precision_macro, (0.5 + 0.5 + 0.75) / 3);
  EXPECT_DOUBLE_EQ(metrics.f1_macro, (0.5 + 0.5 + 0.75) / 3);
  EXPECT_DOUBLE_EQ(metrics.f1_micro, 0.6);
  EXPECT_EQ(metrics.confusion, (std::vector<uint64_t>{2, 1, 1, 1, 1, 0, 1, 0, 3}));
  EXPECT_DOUBLE_EQ(metrics.f1_weighted, (4 * 0.5 + 2 * 0.5 + 4 * 0.75) / 10);
}

TEST(Evaluation, FiguresOfManyClassesTakeNoMatrix) {
  // A matrix would take 8 TB.
  ConfusionMatrix matrix(1'000'000);
  matrix.Add({0, 0, 0, 999'999}, {0, 0, 999'999, 999'999});
  const EvaluationMetrics metrics = matrix.ToMetrics();
  EXPECT_TRUE(metrics.confusion.empty());
  EXPECT_EQ(metrics.classes[0].samples, 3u);
  EXPECT_DOUBLE_EQ(metrics.classes[0].precision, 1);
  EXPECT_DOUBLE_EQ(metrics.classes[0].recall, 2.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.classes[999'999].precision, 0.5);
  EXPECT_DOUBLE_EQ(metrics.accuracy.value_or(-1), 0.75);
  EXPECT_DOUBLE_EQ(metrics.precision_macro, 0.75);
}

TEST(Evaluation, PrecisionAndRecallAreNotMixedUp) {
  ConfusionMatrix matrix(2);
  matrix.Add({0, 0, 0, 1}, {0, 1, 1, 1});
  const EvaluationMetrics metrics = matrix.ToMetrics();
  EXPECT_DOUBLE_EQ(metrics.classes[0].precision, 1);
  EXPECT_DOUBLE_EQ(metrics.classes[0].recall, 1.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.classes[0].f1, 0.5);
  EXPECT_DOUBLE_EQ(metrics.precision_macro, (1 + 1.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(metrics.recall_macro, (1.0 / 3 + 1) / 2);
}

TEST(Evaluation, ClassThatNeverOccursCountsInNoMean) {
  ConfusionMatrix matrix(3);
  matrix.Add({0, 1}, {0, 1});
  const EvaluationMetrics metrics = matrix.ToMetrics();
  EXPECT_EQ(metrics.classes[2].f1, 0);
  EXPECT_EQ(metrics.f1_macro, 1);
  EXPECT_EQ(metrics.f1_weighted, 1);
}

TEST(Evaluation, ClassThatIsOnlyPredictedCountsAsZero) {
  ConfusionMatrix matrix(3);
  matrix.Add({0, 0}, {0, 2});
  const EvaluationMetrics metrics = matrix.ToMetrics();
  EXPECT_EQ(metrics.classes[2].precision, 0);
  EXPECT_DOUBLE_EQ(metrics.recall_macro, 0.5 / 2);
}

TEST(Evaluation, AnAccuracyThatWasNotMeasuredIsNotInTheMetadata) {
  EvaluationResult result;
  result.work.epoch = 3;
  EXPECT_EQ(WeightsMetadata(result), (std::map<std::string, std::string>{{"epoch", "3"}}));
  result.metrics.accuracy = 0.5;
  EXPECT_EQ(WeightsMetadata(result), (std::map<std::string, std::string>{{"epoch", "3"}, {"test_accuracy", "0.5"}}));
}

TEST(Evaluation, NothingSeenGivesZeroes) {
  const EvaluationMetrics metrics = ConfusionMatrix(2).ToMetrics();
  EXPECT_EQ(metrics.samples, 0u);
  EXPECT_EQ(metrics.accuracy, 0);
  EXPECT_EQ(metrics.f1_weighted, 0);
}

}  // namespace
}  // namespace slackline::worker::evaluation_test
