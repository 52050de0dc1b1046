#include "worker/base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/algorithm/container.h"
#include "figure_options.pb.h"
#include "worker/life/trainer_metrics.h"
#include "worker/scheduler_link/scheduler_wire.h"

namespace slackline::worker::progress_test {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr absl::Duration kLongest = absl::Seconds(20);

TEST(ProgressBoard, FirstStepOfAProcessThatComputesIsNotIdle) {
  ProgressBoard board;
  board.Reset(kStart);
  board.Computes(kStart + absl::Seconds(18), kLongest);
  EXPECT_EQ(board.Take(kStart + absl::Seconds(19)).idle, absl::Seconds(1));
  EXPECT_EQ(board.Take(kStart + absl::Seconds(30)).idle, absl::Seconds(12)) << "it computes no more";
}

TEST(ProgressBoard, FirstStepThatComputesForTooLongIsIdleFromItsBeginning) {
  ProgressBoard board;
  board.Reset(kStart);
  board.Alive(kStart + absl::Seconds(5));
  board.Computes(kStart + absl::Seconds(25), kLongest);
  EXPECT_EQ(board.Take(kStart + absl::Seconds(25)).idle, absl::ZeroDuration());
  board.Computes(kStart + absl::Seconds(26), kLongest);
  EXPECT_EQ(board.Take(kStart + absl::Seconds(26)).idle, absl::Seconds(21));
}

TEST(ProgressBoard, StepsSayHowLongLaterOnesMayTake) {
  ProgressBoard board;
  board.Reset(kStart);
  StepFacts step;
  step.compute = absl::Seconds(2);
  board.Record(step, kStart + absl::Seconds(2));
  board.Computes(kStart + absl::Seconds(9), kLongest);
  const StepTotals progress = board.Take(kStart + absl::Seconds(10));
  EXPECT_EQ(progress.idle, absl::Seconds(8));
  EXPECT_EQ(progress.step_median, absl::Seconds(2));
  board.Reset(kStart + absl::Seconds(11));
  board.Computes(kStart + absl::Seconds(15), kLongest);
  EXPECT_EQ(board.Take(kStart + absl::Seconds(15)).idle, absl::ZeroDuration()) << "a new life has a first step, too";
}

TEST(ProgressBoard, FiguresReachTheReportAndTheSeries) {
  StepFacts step;
  step.clock = Clock64(7);
  step.samples = 10;
  step.compute = absl::Milliseconds(500);
  step.data_wait = absl::Milliseconds(125);
  step.shards_applied = 4;
  step.shards_discarded = 3;
  step.shards_quarantined = 2;
  step.lost = 1;
  step.pulled_bytes = 64;
  step.pulled = absl::Milliseconds(250);
  step.staleness_max = 5;
  step.slack = 3;
  step.gradient_norm = 1.5;
  step.local_steps = 6;
  WorkerMembership life;
  life.first_clock = Clock64(6);
  ProgressBoard board;
  slackline::Metrics metrics;
  TrainerMetrics series(metrics);
  board.Reset(kStart);
  EXPECT_EQ(ToWire(life, board.Take(kStart)).clock(), 6u);
  for (int i = 0; i < 2; ++i) {
    board.Record(step, kStart);
    series.Record(step);
  }
  const wire::WorkerProgress report = ToWire(life, board.Take(kStart));
  EXPECT_EQ(report.clock(), 7u);
  EXPECT_EQ(report.steps(), 2u);
  EXPECT_EQ(report.samples(), 20u);
  EXPECT_EQ(report.compute_seconds(), 1);
  EXPECT_EQ(report.data_seconds(), 0.25);
  EXPECT_EQ(report.pull_seconds(), 0.5);
  EXPECT_EQ(report.local_steps(), 12u);
  EXPECT_EQ(report.pushes_applied(), 8u);
  EXPECT_EQ(report.staleness_answers(), 8u);
  EXPECT_EQ(report.pushes_discarded(), 6u);
  EXPECT_EQ(report.pushes_quarantined(), 4u);
  EXPECT_EQ(report.pushes_lost(), 2u);
  EXPECT_EQ(report.pulled_bytes(), 128u);
  EXPECT_EQ(report.staleness_max(), 5u);
  EXPECT_EQ(report.slack_max(), 3u);
  EXPECT_EQ(report.gradient_norm_max(), 1.5);
  const wire::WorkerProgress later = ToWire(life, board.Take(kStart));
  EXPECT_TRUE(later.has_slack_max());
  EXPECT_EQ(later.slack_max(), 0u) << "since the report before it";
  EXPECT_EQ(later.staleness_max(), 5u) << "of all steps";
  const std::string text = metrics.Text();
  for (const char* line :
       {"slackline_worker_steps_total 2", "slackline_worker_samples_total 20",
        "slackline_worker_pulled_bytes_total 128", "slackline_worker_pushes_total{outcome=\"applied\"} 8",
        "slackline_worker_pushes_total{outcome=\"discarded\"} 2",
        "slackline_worker_pushes_total{outcome=\"quarantined\"} 4", "slackline_worker_pushes_total{outcome=\"lost\"} 2",
        "slackline_worker_data_wait_seconds_sum 0.25", "slackline_worker_slack_steps 3",
        "slackline_worker_staleness_versions 5", "slackline_worker_clock_steps 7", "slackline_worker_gradient_norm 1.5",
        "slackline_worker_local_steps_total 12"}) {
    EXPECT_THAT(text, testing::HasSubstr(std::string(line) + "\n"));
  }
}

TEST(ProgressBoard, EveryFigureWithASeriesIsTakenFromSteps) {
  const google::protobuf::Descriptor& report = *wire::WorkerProgress::descriptor();
  for (int i = 0; i < report.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *report.field(i);
    if (!field.options().HasExtension(wire::series)) continue;
    EXPECT_TRUE(absl::c_any_of(kFigures, [&](const StepFigure& figure) { return figure.name == field.name(); }))
        << field.name() << " has a series, and no row in kFigures";
  }
}

TEST(ProgressBoard, FiguresOfAScriptAreReportedUntilTheyChange) {
  ProgressBoard board;
  board.SetValues({{"perplexity", 25.5}});
  board.Reset(absl::UnixEpoch());
  const wire::WorkerProgress sent = ToWire(WorkerMembership(), board.Take(absl::UnixEpoch()));
  ASSERT_EQ(sent.values_size(), 1);
  EXPECT_EQ(sent.values(0).name(), "perplexity");
  EXPECT_EQ(sent.values(0).value(), 25.5);
}

TEST(EvaluationReport, FiguresOfAScriptAreSent) {
  EvaluationResult result;
  result.loss = std::nullopt;
  result.metrics.values = {{"bleu", 0.25}};
  const wire::EvaluationReport report = ToWire(result);
  EXPECT_TRUE(report.without_loss());
  EXPECT_EQ(NamedValuesIn(report.values()), NamedValues({{"bleu", 0.25}}));
}

TEST(EvaluationReport, AnAccuracyThatWasNotMeasuredIsNeitherSentNorServed) {
  slackline::Metrics metrics;
  TrainerMetrics series(metrics);
  EvaluationResult result;
  result.metrics.samples = 500;
  series.RecordEvaluation(result.metrics.accuracy, absl::Seconds(1));
  EXPECT_THAT(metrics.Text(), testing::Not(testing::HasSubstr("accuracy")));
  EXPECT_EQ(ToWire(result).accuracy(), 0);
  EXPECT_TRUE(ToWire(result).without_accuracy());
  result.metrics.accuracy = 0;
  series.RecordEvaluation(result.metrics.accuracy, absl::Seconds(1));
  EXPECT_THAT(metrics.Text(), testing::HasSubstr("slackline_worker_test_accuracy_ratio 0"));
  EXPECT_FALSE(ToWire(result).without_accuracy());
}

}  // namespace
}  // namespace slackline::worker::progress_test
