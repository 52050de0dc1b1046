#include "scheduler/watch/epoch_book.h"

#include <cmath>

#include <gtest/gtest.h>

namespace slackline::scheduler::epoch_book_test {
namespace {

EpochBook::Standing At(double time_s, uint64_t samples, double loss_sum, uint64_t correct) {
  EpochBook::Standing standing;
  standing.time_s = time_s;
  standing.totals.set_samples(samples);
  standing.totals.set_loss_sum(loss_sum);
  standing.totals.set_correct(correct);
  return standing;
}

wire::EvaluationReport Evaluation(uint32_t epoch, bool final, double seconds, double accuracy) {
  wire::EvaluationReport report;
  report.set_epoch(epoch);
  report.set_final(final);
  report.set_seconds(seconds);
  report.set_accuracy(accuracy);
  return report;
}

TEST(EpochBook, FiguresAreOfTheEpochAlone) {
  EpochBook book;
  EpochBook::Standing first = At(10, 100, 200, 50), second = At(16, 200, 250, 140);
  first.joules = 1000;
  second.joules = 1500;
  book.Over(1, first);
  book.Over(2, second);
  ASSERT_EQ(book.rows().size(), 2u);
  EXPECT_EQ(book.rows()[0].train_s, 10);
  EXPECT_EQ(book.rows()[0].loss, 2);
  EXPECT_EQ(book.rows()[0].joules, 1000);
  EXPECT_EQ(book.rows()[1].end_s, 16);
  EXPECT_EQ(book.rows()[1].train_s, 6);
  EXPECT_EQ(book.rows()[1].loss, 0.5);
  EXPECT_EQ(book.rows()[1].accuracy, 0.9);
  EXPECT_EQ(book.rows()[1].joules, 500);
}

TEST(EpochBook, SecondsOfWorkersAreThoseOfTheEpoch) {
  EpochBook book;
  EpochBook::Standing first = At(10, 100, 0, 0), third = At(30, 300, 0, 0);
  first.totals.set_compute_seconds(8);
  first.totals.set_data_seconds(1);
  third.totals.set_compute_seconds(28);
  third.totals.set_data_seconds(5);
  third.totals.set_wait_seconds(3);
  third.totals.set_push_seconds(2);
  third.totals.set_pull_seconds(4);
  book.Over(1, first);
  EpochBook again;  // another life of the scheduler
  again.Restore(book.Save());
  again.Over(3, third);
  ASSERT_EQ(again.rows().size(), 3u);
  EXPECT_EQ(again.rows()[0].seconds.compute, 7);
  EXPECT_EQ(again.rows()[0].seconds.data, 1);
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(again.rows()[i].seconds.compute, 8);  // half of 16: waiting for data does not compute
    EXPECT_EQ(again.rows()[i].seconds.data, 2);
    EXPECT_EQ(again.rows()[i].seconds.wait, 1.5);
    EXPECT_EQ(again.rows()[i].seconds.push, 1);
    EXPECT_EQ(again.rows()[i].seconds.pull, 2);
  }
}

TEST(EpochBook, EvaluationsGoToTheirEpoch) {
  EpochBook book;
  book.Over(1, At(10, 100, 0, 0));
  book.Evaluated(Evaluation(1, false, 2, 0.5), /*alone=*/true);
  book.Over(2, At(22, 200, 0, 0));
  book.Evaluated(Evaluation(2, false, 3, 0.625), /*alone=*/false);
  book.Over(3, At(32, 300, 0, 0));
  wire::EvaluationReport last = Evaluation(3, true, 4, 0.75);
  last.set_top5_accuracy(0.875);
  book.Evaluated(last, /*alone=*/true);
  // Of no epoch that is known.
  book.Evaluated(Evaluation(9, true, 4, 0.1), /*alone=*/true);
  EXPECT_EQ(book.rows()[0].validation_s, 2);
  EXPECT_EQ(book.rows()[0].test_accuracy, 0.5);
  EXPECT_EQ(book.rows()[1].train_s, 10);  // 12, less 2 in which nobody trained
  EXPECT_EQ(book.rows()[2].train_s, 10);  // others trained
  EXPECT_EQ(book.rows()[2].validation_s, 0);
  EXPECT_EQ(book.rows()[2].test_s, 4);
  EXPECT_EQ(book.rows()[2].top5_accuracy, 0.875);
  EXPECT_FALSE(book.rows()[1].top5_accuracy);
  wire::EvaluationReport objects = Evaluation(3, true, 4, 0.25);
  objects.set_map_50(0.5);
  EpochBook other;
  other.Over(3, At(32, 300, 0, 0));
  other.Evaluated(objects, /*alone=*/true);
  EXPECT_EQ(other.rows()[2].test_accuracy, 0.25);
  EXPECT_FALSE(other.rows()[2].test_loss);
  wire::EvaluationReport script = Evaluation(3, true, 4, 0);
  EpochBook third;
  third.Over(3, At(32, 300, 0, 0));
  third.Evaluated(script, /*alone=*/true);
  EXPECT_EQ(third.rows()[2].test_accuracy, 0) << "a worker of an earlier version";
  script.set_without_accuracy(true);
  third.Evaluated(script, /*alone=*/true);
  EXPECT_FALSE(third.rows()[2].test_accuracy);
  EXPECT_TRUE(third.rows()[2].test_loss);
}

TEST(EpochBook, RowsSayHowManySamplesWereTrainedAndApplied) {
  EpochBook book;
  EpochBook::Standing first = At(10, 104, 0, 0);
  first.totals.set_samples_applied(90);
  book.Over(1, first);
  EpochBook again;
  again.Restore(book.Save());
  for (const EpochBook* one : {&book, &again}) {
    EXPECT_EQ(one->rows()[0].samples, 104u);
    EXPECT_EQ(one->rows()[0].samples_applied, 90u);
    EXPECT_EQ(one->epochs(), 1u);
  }
}

TEST(EpochBook, FiguresOfAScriptAreKept) {
  EpochBook book;
  book.Over(1, At(1, 100, 0, 0));
  wire::EvaluationReport report = Evaluation(1, /*final=*/false, 1, 0);
  wire::NamedValue& value = *report.add_values();
  value.set_name("perplexity");
  value.set_value(21.5);
  book.Evaluated(report, /*alone=*/false);
  EpochBook again;
  again.Restore(book.Save());
  EXPECT_EQ(again.rows()[0].test_values, (NamedValues{{"perplexity", 21.5}}));
}

TEST(EpochBook, EvaluationBetweenTwoEpochsBelongsToNone) {
  EpochBook book;
  book.Over(1, At(10, 100, 0, 0));
  wire::EvaluationReport between = Evaluation(1, false, 2, 0.5);
  between.set_at_samples(150);
  book.Evaluated(between, /*alone=*/true);
  EXPECT_FALSE(book.rows()[0].test_accuracy);
  EXPECT_EQ(book.rows()[0].validation_s, 0);
  book.Over(2, At(22, 200, 0, 0));
  EXPECT_EQ(book.rows()[1].train_s, 10) << "nobody trained for 2 s";
}

TEST(EpochBook, WhatIsNotKnownIsAbsent) {
  EpochBook book;
  book.Over(1, At(10, 0, 0, 0));
  EXPECT_FALSE(book.rows()[0].loss);
  EXPECT_FALSE(book.rows()[0].joules);
  EXPECT_FALSE(book.rows()[0].test_accuracy);
  book.Evaluated(Evaluation(1, false, std::nan(""), 0.5), /*alone=*/true);
  EXPECT_EQ(book.rows()[0].validation_s, 0);
}

TEST(EpochBook, EpochsThatEndTogetherShareEqually) {
  EpochBook book;
  EpochBook::Standing now = At(9, 300, 600, 150);
  now.joules = 300;
  book.Over(3, now);
  ASSERT_EQ(book.rows().size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(book.rows()[i].epoch, i + 1);
    EXPECT_EQ(book.rows()[i].train_s, 3);
    EXPECT_EQ(book.rows()[i].joules, 100);
    EXPECT_EQ(book.rows()[i].loss, 2);
  }
  book.Over(3, now);
  EXPECT_EQ(book.rows().size(), 3u);
}

TEST(EpochBook, RowsAreBounded) {
  EpochBook book;
  constexpr auto kMany = static_cast<uint32_t>(EpochBook::kRowsMax) + 10;
  book.Over(kMany, At(1, 1, 1, 1));
  EXPECT_EQ(book.rows().size(), EpochBook::kRowsMax);
  EXPECT_EQ(book.rows().back().epoch, EpochBook::kRowsMax);
}

TEST(EpochBook, NewsAreTakenOnce) {
  EpochBook book;
  EXPECT_FALSE(book.TakeNews());
  book.Over(1, At(1, 1, 1, 1));
  EXPECT_EQ(book.TakeNews()->size(), 1u);
  EXPECT_FALSE(book.TakeNews());
}

TEST(EpochBook, GoesOnFromWhatWasSaved) {
  EpochBook book;
  EpochBook::Standing first = At(10, 100, 200, 50);
  first.joules = 1000;
  book.Over(1, first);
  book.Evaluated(Evaluation(1, false, 2, 0.5), /*alone=*/true);
  EpochBook again;
  again.Restore(book.Save());
  EpochBook::Standing second = At(20, 200, 250, 140);
  second.joules = 1500;
  for (EpochBook* one : {&book, &again}) one->Over(2, second);
  ASSERT_EQ(again.rows().size(), 2u);
  EXPECT_EQ(again.rows()[0].validation_s, 2);
  EXPECT_EQ(again.rows()[0].joules, 1000);
  EXPECT_EQ(again.rows()[1].train_s, 8);
  EXPECT_EQ(again.rows()[1].train_s, book.rows()[1].train_s);
  EXPECT_EQ(again.rows()[1].loss, book.rows()[1].loss);
  EXPECT_EQ(again.rows()[1].joules, 500);
}

}  // namespace
}  // namespace slackline::scheduler::epoch_book_test
