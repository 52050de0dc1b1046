#include "scheduler/watch/early_stopping.h"

#include <limits>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/watch/evaluations.h"

namespace slackline::scheduler::early_stopping_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

const ComparedMetric kAccuracy = {.name = "accuracy", .lower_is_better = false};
const ComparedMetric kLoss = {.name = "loss", .lower_is_better = true};
const ComparedMetric kPerplexity = {.name = "perplexity", .lower_is_better = true};

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
  EXPECT_EQ(WhyEarly(Patience(2), kAccuracy, Measured({0.5, 0.6, 0.6})), std::nullopt) << "one";
  EXPECT_THAT(WhyEarly(Patience(2), kAccuracy, Measured({0.5, 0.6, 0.6, 0.55})),
              Optional(HasSubstr("2 evaluations in a row did not better it: the best is test accuracy 60.00 % after "
                                 "epoch 2")));
  EXPECT_EQ(WhyEarly(Patience(2), kAccuracy, Measured({0.5, 0.6, 0.6, 0.7})), std::nullopt)
      << "a better one begins anew";
  EXPECT_EQ(WhyEarly(Patience(0), kAccuracy, Measured({0.5, 0.5, 0.5, 0.5})), std::nullopt) << "off";
  EXPECT_EQ(WhyEarly(Patience(1), kAccuracy, {}), std::nullopt);
}

TEST(EarlyStopping, ARunThatGoesOnHasItsPatienceAnew) {
  const std::vector<EvaluationSummary> measured = Measured({0.5, 0.6, 0.6, 0.55, 0.6});
  EXPECT_NE(WhyEarly(Patience(2), kAccuracy, measured), std::nullopt);
  EXPECT_EQ(WhyEarly(Patience(2), kAccuracy, measured, 4), std::nullopt) << "one";
  EXPECT_NE(WhyEarly(Patience(1), kAccuracy, measured, 4), std::nullopt) << "no better than before it went on";
}

TEST(EarlyStopping, SmallGainsAreNone) {
  EXPECT_EQ(WhyEarly(Patience(2, 0.01), kAccuracy, Measured({0.5, 0.505, 0.512})), std::nullopt)
      << "together they are enough";
  EXPECT_NE(WhyEarly(Patience(2, 0.01), kAccuracy, Measured({0.5, 0.505, 0.509})), std::nullopt);
}

TEST(EarlyStopping, LessLossIsBetter) {
  std::vector<EvaluationSummary> measured = Measured({0.5, 0.5});
  measured[1].loss = 0.3;
  EXPECT_EQ(WhyEarly(Patience(1), kLoss, measured), std::nullopt);
  EXPECT_NE(WhyEarly(Patience(1), kAccuracy, measured), std::nullopt) << "by accuracy";
  EXPECT_TRUE(LastIsBest(kLoss, measured));
  EXPECT_FALSE(LastIsBest(kAccuracy, measured));
}

TEST(EarlyStopping, WhatWasMeasuredIsNamed) {
  EvaluationSummary evaluation = {.epoch = 2, .accuracy = 0.4152, .loss = 0.5, .map = false};
  EXPECT_EQ(Described("accuracy", evaluation), "test accuracy 41.52 %");
  evaluation.map = true;
  EXPECT_EQ(Described("accuracy", evaluation), "test mAP 41.52 %");
  EXPECT_EQ(Described("accuracy", FromState(ToState(evaluation))), "test mAP 41.52 %");
}

TEST(EarlyStopping, EvaluationsWithoutAnAccuracyAreLeftOut) {
  EXPECT_EQ(WhyEarly(Patience(1), kAccuracy, Measured({std::nullopt, std::nullopt, std::nullopt})), std::nullopt);
  EXPECT_EQ(WhyEarly(Patience(2), kAccuracy, Measured({0.5, std::nullopt, 0.4})), std::nullopt);
  EXPECT_THAT(WhyEarly(Patience(2), kAccuracy, Measured({0.5, std::nullopt, 0.4, 0.3})),
              Optional(HasSubstr("accuracy 50.00 %")));
  EXPECT_FALSE(LastIsBest(kAccuracy, Measured({std::nullopt})));
  EXPECT_TRUE(LastIsBest(kAccuracy, Measured({std::nullopt, 0.1})));
  EXPECT_TRUE(LastIsBest(kLoss, Measured({std::nullopt})));
  EXPECT_NE(WhyEarly(Patience(1), kLoss, Measured({std::nullopt, std::nullopt})), std::nullopt);
  const EvaluationSummary evaluation = {.epoch = 2, .accuracy = std::nullopt, .loss = 0.031};
  EXPECT_EQ(Described("accuracy", evaluation), "test loss 0.0310");
  EXPECT_EQ(FromState(ToState(evaluation)).accuracy, std::nullopt);
  EXPECT_EQ(FromState(state::MeasuredAccuracy()).accuracy, 0) << "state of an earlier version";
}

// A script's figures; each evaluation is after one more epoch.
std::vector<EvaluationSummary> Perplexities(const std::vector<double>& values) {
  std::vector<EvaluationSummary> out;
  for (const double value : values) {
    out.push_back({.epoch = static_cast<uint32_t>(out.size() + 1), .loss = 1, .values = {{"perplexity", value}}});
  }
  return out;
}

TEST(EarlyStopping, AScriptsFigureIsComparedInItsDirection) {
  const std::vector<EvaluationSummary> measured = Perplexities({30, 20, 25, 20});
  EXPECT_THAT(WhyEarly(Patience(2), kPerplexity, measured),
              Optional(HasSubstr("the best is test perplexity 20 after epoch 2")));
  EXPECT_EQ(WhyEarly(Patience(2), kPerplexity, Perplexities({30, 20, 25, 19})), std::nullopt);
  ASSERT_NE(BestOf(kPerplexity, measured), nullptr);
  EXPECT_EQ(BestOf(kPerplexity, measured)->epoch, 2u);
  EXPECT_FALSE(LastIsBest(kPerplexity, measured)) << "no better than an earlier one";
  EXPECT_TRUE(LastIsBest(kPerplexity, Perplexities({30, 20})));
  EXPECT_EQ(BestOf({.name = "bleu", .lower_is_better = false}, measured), nullptr);
}

TEST(EarlyStopping, AnEvaluationOnOtherImagesIsNotTheBestUnlessItIsAlone) {
  std::vector<EvaluationSummary> measured = Perplexities({30, 20, 10});
  measured.back().apart = true;
  EXPECT_EQ(BestOf(kPerplexity, measured)->epoch, 2u);
  EXPECT_FALSE(LastIsBest(kPerplexity, measured));
  measured.erase(measured.begin(), measured.begin() + 2);
  EXPECT_TRUE(LastIsBest(kPerplexity, measured));
}

TEST(EarlyStopping, FiguresOfAScriptSurviveInTheState) {
  const EvaluationSummary evaluation = {.epoch = 2, .loss = std::nullopt, .values = {{"bleu", 0.5}, {"f1", 0.25}}};
  const EvaluationSummary back = FromState(ToState(evaluation));
  EXPECT_EQ(back.values, evaluation.values);
  EXPECT_EQ(back.loss, std::nullopt);
  EXPECT_EQ(Described("bleu", back), "test bleu 0.5");
  EXPECT_EQ(Described("perplexity", back), "no test perplexity");
  EXPECT_EQ(FromState(state::MeasuredAccuracy()).loss, 0) << "state of an earlier version";
  state::MeasuredAccuracy objects;
  objects.set_map(true);
  EXPECT_EQ(FromState(objects).loss, std::nullopt) << "state of an earlier version";
}

TEST(Evaluations, GoOnFromTheirState) {
  job::Job job;
  job.mutable_training()->mutable_metric()->set_name("perplexity");
  job.mutable_training()->mutable_metric()->set_better(job::ComparedMetric::LOWER);
  Evaluations evaluations(job);
  for (const double value : {20.0, 30.0}) {
    wire::EvaluationReport report;
    AddNamedValues({{"perplexity", value}}, report.mutable_values());
    evaluations.Note(report, {.time_s = value}, "worker-1");
  }
  state::Scheduler state;
  evaluations.Save(state);
  Evaluations other(job);
  other.Restore(state, /*anew=*/false);
  EXPECT_EQ(other.JobMetric().last(), 30);
  EXPECT_EQ(other.JobMetric().best(), 20);
  ASSERT_TRUE(other.last());
  EXPECT_EQ(NamedValuesIn(other.last()->values()), NamedValues({{"perplexity", 30}}));
  wire::JobCurve curve;
  other.FillCurve(/*points_max=*/1, curve);
  EXPECT_THAT(curve.metric(), ::testing::ElementsAre(30)) << "the last one is always there";
}

TEST(EarlyStopping, SettingsThatCompareWhatIsNotMeasuredAreNamed) {
  const EvaluationSummary loss_alone = {.accuracy = std::nullopt, .loss = 1};
  job::Job job;
  EXPECT_EQ(WarnOfUnmeasured(job, loss_alone), std::nullopt);
  job::EarlyStopping& early = *job.mutable_training()->mutable_early_stopping();
  early.set_patience(3);
  EXPECT_EQ(WarnOfUnmeasured(job, loss_alone),
            "warning: evaluations report loss and no accuracy (training.metric), so training does not end early; let "
            "the evaluation return what is missing, or set training.metric to what it returns");
  job.mutable_checkpoint()->set_keep_best(1);
  EXPECT_THAT(WarnOfUnmeasured(job, loss_alone),
              Optional(HasSubstr("no accuracy (training.metric), so training does not end early and no checkpoint is "
                                 "kept as the best;")));
  early.set_metric(job::Metric::TEST_LOSS);
  EXPECT_THAT(WarnOfUnmeasured(job, loss_alone),
              Optional(HasSubstr("no accuracy (training.metric), so no checkpoint")));
  job.mutable_checkpoint()->set_metric(job::Metric::TEST_LOSS);
  EXPECT_EQ(WarnOfUnmeasured(job, loss_alone), std::nullopt);
  EXPECT_THAT(WarnOfUnmeasured(job, {.accuracy = 0.5, .loss = std::nullopt}),
              Optional(HasSubstr("report accuracy and no loss (training.early_stopping.metric), no loss "
                                 "(checkpoint.metric), so training does not end early and")));
}

TEST(EarlyStopping, AMetricThatAScriptNeverReportsIsNamed) {
  job::Job job;
  job.mutable_training()->mutable_metric()->set_name("perplexity");
  EXPECT_EQ(WarnOfUnmeasured(job, {.accuracy = 0.5, .loss = 1, .values = {{"f1", 0.5}, {"ppl", 20}}}),
            "warning: evaluations report accuracy, loss, f1, ppl and no perplexity (training.metric), so the job's "
            "metric is unknown; let the evaluation return what is missing, or set training.metric to what it returns");
  EXPECT_THAT(WarnOfUnmeasured(job, {.loss = std::nullopt}), Optional(HasSubstr("report nothing and no perplexity")));
  EXPECT_EQ(WarnOfUnmeasured(job, Perplexities({20})[0]), std::nullopt);
}

TEST(EarlyStopping, EpochsBeforeTheFirstDoNotCount) {
  EXPECT_EQ(WhyEarly(Patience(2, 0, 4), kAccuracy, Measured({0.9, 0.5, 0.5, 0.5, 0.5})), std::nullopt);
  EXPECT_NE(WhyEarly(Patience(2, 0, 4), kAccuracy, Measured({0.9, 0.5, 0.5, 0.5, 0.5, 0.5})), std::nullopt);
}

TEST(EarlyStopping, WhatIsNoNumberIsNeverTheBest) {
  EXPECT_TRUE(LastIsBest(kAccuracy, Measured({kNoNumber, 0.1})));
  EXPECT_FALSE(LastIsBest(kAccuracy, Measured({0.1, kNoNumber})));
  EXPECT_FALSE(LastIsBest(kAccuracy, Measured({kNoNumber})));
  EXPECT_THAT(WhyEarly(Patience(2), kAccuracy, Measured({kNoNumber, kNoNumber})),
              Optional(HasSubstr("none has a number")));
}

}  // namespace
}  // namespace slackline::scheduler::early_stopping_test
