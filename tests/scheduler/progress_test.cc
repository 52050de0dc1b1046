#include "scheduler/watch/progress.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

namespace slackline::scheduler::progress_test {
namespace {

const Holder kFirst = {WorkerId(1), Incarnation(1)};
const Holder kSecond = {WorkerId(2), Incarnation(2)};

wire::WorkerProgress Totals(uint64_t clock, uint64_t samples, double loss_sum = 0, uint64_t correct = 0) {
  wire::WorkerProgress progress;
  progress.set_clock(clock);
  progress.set_steps(clock);
  progress.set_samples(samples);
  progress.set_loss_sum(loss_sum);
  progress.set_correct(correct);
  return progress;
}

state::Progress SavedBy(const Progress& progress) {
  state::Progress saved;
  progress.Save(saved);
  return saved;
}

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(Progress, MeansCoverWhatWasTrainedSinceTheReportBefore) {
  Progress progress;
  progress.Heard(kFirst, Totals(1, 100, 200, 50), true, At(0));
  progress.Heard(kSecond, Totals(1, 100, 100, 100), true, At(0));
  EXPECT_DOUBLE_EQ(*progress.Report().loss, 1.5);
  EXPECT_DOUBLE_EQ(*progress.latest().accuracy, 0.75);
  progress.Heard(kFirst, Totals(2, 200, 250, 150), true, At(1));
  EXPECT_DOUBLE_EQ(*progress.Report().loss, 0.5);
  EXPECT_DOUBLE_EQ(*progress.latest().accuracy, 1.0);
}

wire::WorkerProgress WithPerplexity(wire::WorkerProgress progress, double value) {
  progress.clear_values();
  AddNamedValues({{"perplexity", value}}, progress.mutable_values());
  return progress;
}

TEST(Progress, FiguresOfScriptsAreTheMeanOfWhatLiveWorkersReportedLast) {
  Progress progress;
  EXPECT_TRUE(progress.Report().values.empty());
  progress.Heard(kFirst, WithPerplexity(Totals(1, 100), 20), true, At(0));
  progress.Heard(kSecond, WithPerplexity(Totals(1, 100), 30), true, At(0));
  EXPECT_EQ(progress.Report().values, NamedValues({{"perplexity", 25}}));
  progress.Left(kSecond);
  EXPECT_EQ(progress.Report().values, NamedValues({{"perplexity", 20}}));
  Progress again;
  again.Restore(SavedBy(progress));
  EXPECT_EQ(again.latest().values, NamedValues({{"perplexity", 20}}));
}

TEST(Progress, WhatIsNoFigureOfAScriptIsNotCounted) {
  wire::WorkerProgress reported = Totals(1, 100);
  AddNamedValues({{"../up", 1}, {"nan", NAN}, {std::string(65, 'a'), 1}, {"f1", 0.5}}, reported.mutable_values());
  for (size_t i = 0; i < 2 * kMetricNamesMax; ++i) {
    AddNamedValues({{"more_" + std::to_string(i), 1}}, reported.mutable_values());
  }
  Progress progress;
  progress.Heard(kFirst, reported, true, At(0));
  const NamedValues values = progress.Report().values;
  EXPECT_EQ(values.size(), kMetricNamesMax);
  EXPECT_TRUE(values.contains("f1"));
  EXPECT_FALSE(values.contains("../up") || values.contains("nan"));
}

TEST(Progress, AccuracyIsOfTheSamplesThatWereJudged) {
  Progress progress;
  wire::WorkerProgress unjudged = Totals(1, 100, 200);
  unjudged.set_samples_unjudged(100);
  progress.Heard(kFirst, unjudged, true, At(0));
  EXPECT_DOUBLE_EQ(*progress.Report().loss, 2);
  EXPECT_FALSE(progress.latest().accuracy);
  unjudged.set_samples(200);
  unjudged.set_samples_unjudged(200);
  progress.Heard(kFirst, unjudged, true, At(1));
  progress.Heard(kSecond, Totals(1, 100, 0, 75), true, At(1));
  progress.Report();
  EXPECT_DOUBLE_EQ(*progress.latest().accuracy, 0.75);
  Progress again;
  again.Restore(SavedBy(progress));
  EXPECT_EQ(again.totals().samples_unjudged(), 200u);
}

TEST(Progress, LossIsOfTheSamplesWhoseLossIsKnown) {
  Progress progress;
  wire::WorkerProgress silent = Totals(1, 100, 0);
  silent.set_samples_without_loss(100);
  progress.Heard(kFirst, silent, true, At(0));
  EXPECT_FALSE(progress.Report().loss);
  silent.set_samples(200);
  silent.set_samples_without_loss(200);
  progress.Heard(kFirst, silent, true, At(1));
  progress.Heard(kSecond, Totals(1, 100, 150), true, At(1));
  EXPECT_DOUBLE_EQ(*progress.Report().loss, 1.5);
  Progress again;
  again.Restore(SavedBy(progress));
  EXPECT_EQ(again.totals().samples_without_loss(), 200u);
}

TEST(Progress, ResumedRunKeepsWhatEachWorkerTrained) {
  Progress progress;
  progress.Heard(kFirst, Totals(1, 100), true, At(0));
  progress.Heard(kSecond, Totals(1, 50), true, At(0));
  Progress second;
  second.Resume(SavedBy(progress), {{kFirst.worker, "w-1"}});
  EXPECT_EQ(second.totals().samples(), 150u);
  EXPECT_EQ(second.TotalsOf(kFirst.worker).samples(), 0u) << "another worker has this number now";
  EXPECT_EQ(second.earlier().at("w-1").samples(), 100u);
  EXPECT_EQ(second.forgotten().samples(), 50u) << "of a worker without a name";
  // In the next run, the same name has another number.
  second.Heard(kSecond, Totals(1, 7), true, At(1));
  Progress third;
  third.Resume(SavedBy(second), {{kSecond.worker, "w-1"}});
  EXPECT_EQ(third.earlier().at("w-1").samples(), 107u);
  EXPECT_EQ(third.forgotten().samples(), 50u);
}

TEST(Progress, SharesOfSamplesAreAtMostAllOfThem) {
  Progress progress;
  wire::WorkerProgress absurd = Totals(1, 100, 50, uint64_t{1} << 63);
  absurd.set_samples_without_loss(uint64_t{1} << 63);
  progress.Heard(kFirst, absurd, true, At(0));
  progress.Report();
  EXPECT_DOUBLE_EQ(*progress.latest().accuracy, 1);
  EXPECT_FALSE(progress.latest().loss);
  EXPECT_EQ(progress.totals().samples_without_loss(), 100u);
}

TEST(Progress, EveryFigureIsAddedUp) {
  Progress progress;
  wire::WorkerProgress words;
  for (const double factor : {1, 2}) {
    for (const Figure& figure : Figures()) {
      // Parts of samples stay below them.
      const double value = factor * (200 - figure.total->number());
      if (figure.total->cpp_type() == figure.total->CPPTYPE_UINT64) {
        words.GetReflection()->SetUInt64(&words, figure.reported, static_cast<uint64_t>(value));
      } else {
        words.GetReflection()->SetDouble(&words, figure.reported, value);
      }
    }
    progress.Heard(kFirst, words, true, At(factor));
  }
  state::Totals all;
  CopyFigures(words, all);
  EXPECT_EQ(progress.totals().DebugString(), all.DebugString());
  EXPECT_EQ(all.samples(), 398u);
  EXPECT_EQ(all.pushes_quarantined(), 382u);
  EXPECT_EQ(all.pull_seconds(), 366);
  Progress again;
  again.Restore(SavedBy(progress));
  EXPECT_EQ(again.TotalsOf(kFirst.worker).DebugString(), all.DebugString());
}

TEST(Progress, NothingTrainedKeepsTheLastMeans) {
  Progress progress;
  EXPECT_FALSE(progress.Report().loss);
  progress.Heard(kFirst, Totals(1, 100, 200), true, At(0));
  progress.Report();
  EXPECT_DOUBLE_EQ(*progress.Report().loss, 2);
}

TEST(Progress, SamplesOfDiscardedPushesAreTrainedAndNotApplied) {
  Progress progress;
  wire::WorkerProgress words = Totals(5, 500);
  words.set_samples_applied(400);
  progress.Heard(kFirst, words, true, At(0));
  progress.Heard(kSecond, Totals(1, 100), true, At(0));  // an earlier version, which does not tell them apart
  EXPECT_EQ(progress.totals().samples(), 600u);
  EXPECT_EQ(progress.totals().samples_applied(), 500u);
  state::Progress saved = SavedBy(progress);
  Progress again;
  again.Restore(saved);
  EXPECT_EQ(again.totals().samples_applied(), 500u);
  saved.mutable_totals()->clear_samples_applied();
  Progress of_earlier;
  of_earlier.Restore(saved);
  EXPECT_EQ(of_earlier.totals().samples_applied(), 600u);
}

TEST(Progress, NewIncarnationBeginsAtZeroAgain) {
  Progress progress;
  progress.Heard(kFirst, Totals(5, 500), true, At(0));
  progress.Heard({WorkerId(1), Incarnation(7)}, Totals(1, 100), true, At(1));
  EXPECT_EQ(progress.totals().samples(), 600u);
  EXPECT_EQ(progress.totals().steps(), 6u);
}

TEST(Progress, WorkersTotalsAreThoseOfAllItsLives) {
  Progress progress;
  wire::WorkerProgress words = Totals(5, 500);
  words.set_compute_seconds(2.5);
  words.set_pushes_discarded(3);
  progress.Heard(kFirst, words, true, At(0));
  words.set_compute_seconds(1);
  progress.Heard({WorkerId(1), Incarnation(7)}, words, true, At(1));
  progress.Heard(kSecond, Totals(1, 100), true, At(1));
  const state::Totals totals = progress.TotalsOf(WorkerId(1));
  EXPECT_EQ(totals.samples(), 1000u);
  EXPECT_EQ(totals.pushes_discarded(), 6u);
  EXPECT_DOUBLE_EQ(totals.compute_seconds(), 3.5);
  EXPECT_EQ(progress.TotalsOf(WorkerId(9)).samples(), 0u);
}

TEST(Progress, WorkerThatIsForgottenStaysInTheSums) {
  Progress progress;
  wire::WorkerProgress words;
  words.set_samples(30);
  words.set_steps(3);
  progress.Heard({WorkerId(1), Incarnation(1)}, words, true, absl::UnixEpoch());
  words.set_samples(50);
  progress.Heard({WorkerId(2), Incarnation(2)}, words, true, absl::UnixEpoch());
  progress.Forget(WorkerId(1));
  progress.Forget(WorkerId(7));  // never heard of
  const state::Progress saved = SavedBy(progress);
  EXPECT_EQ(saved.workers_size(), 1);
  Progress after;
  after.Restore(saved);
  for (const Progress* one : {&progress, &after}) {
    EXPECT_EQ(one->totals().samples(), 80u);
    EXPECT_EQ(one->forgotten().samples(), 30u);
    EXPECT_EQ(one->TotalsOf(WorkerId(1)).samples(), 0u);
    EXPECT_EQ(one->TotalsOf(WorkerId(2)).samples(), 50u);
  }
}

TEST(Progress, StalenessIsCountedOverAllLives) {
  Progress progress;
  wire::WorkerProgress words = Totals(1, 1);
  words.add_staleness_counts(4);
  words.add_staleness_counts(2);
  progress.Heard(kFirst, words, true, At(0));
  words.set_staleness_counts(1, 5);
  progress.Heard(kFirst, words, true, At(1));
  progress.Heard({WorkerId(1), Incarnation(7)}, words, true, At(2));
  EXPECT_EQ(progress.staleness().InBucket(0), 8u);
  EXPECT_EQ(progress.staleness().InBucket(1), 10u);
}

TEST(Progress, LargestGradientIsThatOfTheInterval) {
  Progress progress;
  wire::WorkerProgress words = Totals(2, 20);
  words.set_gradient_norm_max(7);
  progress.Heard(kFirst, words, true, At(0));
  words = Totals(1, 10);  // overtaken
  words.set_gradient_norm_max(9);
  progress.Heard(kFirst, words, true, At(0));
  words.set_gradient_norm_max(std::nan(""));
  progress.Heard(kSecond, words, true, At(0));
  EXPECT_EQ(progress.TakeGradientNormPeak(), 9);
  EXPECT_EQ(progress.TakeGradientNormPeak(), 0);
  EXPECT_EQ(progress.Report().gradient_norm_max, 9);
  EXPECT_EQ(progress.Report().gradient_norm_max, 0);
}

TEST(Progress, LearningRateIsThatOfTheLastPushThatWasHeardOf) {
  Progress progress;
  EXPECT_FALSE(progress.Report().learning_rate);
  wire::WorkerProgress words = Totals(1, 10);
  words.set_learning_rate(0.25);
  progress.Heard(kFirst, words, true, At(0));
  EXPECT_EQ(progress.Report().learning_rate, 0.25);
  words.set_learning_rate(0.125);
  progress.Heard(kFirst, words, true, At(1));  // no step since
  EXPECT_EQ(progress.Report().learning_rate, 0.25);
  words = Totals(2, 20);
  words.set_learning_rate(0);
  progress.Heard(kFirst, words, true, At(2));
  EXPECT_EQ(progress.Report().learning_rate, 0);
  progress.Heard(kSecond, Totals(1, 10), true, At(3));  // its pushes have the job's rate
  EXPECT_FALSE(progress.Report().learning_rate);
}

TEST(Progress, StalenessIsReportedOnce) {
  Progress progress;
  wire::WorkerProgress words = Totals(2, 20);
  words.add_staleness_counts(3);
  words.add_staleness_counts(1);
  progress.Heard(kFirst, words, true, At(0));
  EXPECT_EQ(progress.Report().staleness.InBucket(0), 3u);
  words.set_clock(3);
  words.set_staleness_counts(1, 6);
  progress.Heard(kFirst, words, true, At(1));
  const StalenessCounts since = progress.Report().staleness;
  EXPECT_EQ(since.InBucket(0), 0u);
  EXPECT_EQ(since.InBucket(1), 5u);
  state::Progress state;
  progress.Save(state);
  Progress again;
  again.Restore(state);
  EXPECT_EQ(again.Report().staleness.used(), 0u);
}

TEST(Progress, MoreBucketsThanThereAreAreNotCounted) {
  Progress progress;
  wire::WorkerProgress words = Totals(1, 1);
  for (int i = 0; i < 1000; ++i) words.add_staleness_counts(1);
  progress.Heard(kFirst, words, true, At(0));
  EXPECT_EQ(progress.staleness().used(), StalenessCounts::kBuckets);
}

TEST(Progress, ShrinkingTotalsAndBrokenLossesAreNotCounted) {
  Progress progress;
  progress.Heard(kFirst, Totals(5, 500, 10), true, At(0));
  progress.Heard(kFirst, Totals(4, 400, std::nan("")), true, At(1));
  EXPECT_EQ(progress.totals().samples(), 500u);
  EXPECT_DOUBLE_EQ(progress.totals().loss_sum(), 10);
}

TEST(Progress, WordsThatWereOvertakenAreNotCountedAgain) {
  Progress progress;
  progress.Heard(kFirst, Totals(5, 500, 10), true, At(0));
  progress.Heard(kFirst, Totals(4, 400, 8), true, At(0));
  progress.Heard(kFirst, Totals(6, 600, 12), true, At(1));
  EXPECT_EQ(progress.totals().samples(), 600u);
  EXPECT_EQ(progress.totals().steps(), 6u);
  EXPECT_DOUBLE_EQ(progress.totals().loss_sum(), 12);
}

TEST(Progress, RateIsThatOfTheWindow) {
  Progress progress(absl::Seconds(5));
  for (int second = 0; second <= 10; ++second) {
    // 100 samples/s at first, 300 later.
    const uint64_t samples = second <= 5 ? 100 * second : 500 + 300 * (second - 5);
    progress.Heard(kFirst, Totals(second, samples), true, At(second));
  }
  EXPECT_NEAR(progress.SamplesPerSecond(At(10)), 300, 1);
  EXPECT_NEAR(progress.SamplesPerSecond(kFirst, At(10)), 300, 1);
  EXPECT_EQ(progress.SamplesPerSecond(At(20)), 0);
  EXPECT_NEAR(progress.SamplesPerSecondLately(At(20)), 200, 1) << "of the last minutes";
}

TEST(Progress, RateBeginsWhenTrainingDoes) {
  Progress progress(absl::Seconds(5));
  for (int second = 0; second <= 3; ++second) progress.Heard(kFirst, Totals(0, 0), true, At(second));
  progress.Heard(kFirst, Totals(1, 100), true, At(4));
  EXPECT_NEAR(progress.SamplesPerSecond(At(4)), 100, 1) << "no mean with the 3 s before";
  EXPECT_NEAR(progress.SamplesPerSecond(kFirst, At(4)), 100, 1);
  EXPECT_NEAR(progress.SamplesPerSecondLately(At(4)), 100, 1);
}

TEST(Progress, RateAfterARestartLeavesOutWhatWasTrainedBefore) {
  Progress first;
  first.Heard(kFirst, Totals(1, 100), true, At(0));
  first.Heard(kSecond, Totals(1, 100), true, At(0));
  Progress again;
  again.Restore(SavedBy(first));
  again.Heard(kFirst, Totals(50, 10000), true, At(60));
  again.Heard(kSecond, Totals(50, 10000), true, At(60.1));
  EXPECT_EQ(again.SamplesPerSecond(At(60.1)), 0);
  again.Heard(kFirst, Totals(51, 10100), true, At(61.1));
  EXPECT_NEAR(again.SamplesPerSecond(At(61.1)), 100, 1);
  EXPECT_NEAR(again.SamplesPerSecondLately(At(61.1)), 100, 1);
}

TEST(Progress, UnreportedLossesOutliveTheScheduler) {
  wire::RestoredWorker restored;
  restored.set_shards(2);
  restored.set_clock_sum(44 + 47);
  Progress before;
  before.Heard(kFirst, Totals(50, 1), true, At(0));
  before.Restored(ServerId(1), kFirst, restored, At(1));
  Progress after;
  after.Restore(SavedBy(before));
  EXPECT_EQ(after.TakeUnreported(kSecond), 0u);
  EXPECT_EQ(after.TakeUnreported(kFirst), 9u);
  EXPECT_EQ(after.TakeUnreported(kFirst), 0u) << "once";
  EXPECT_EQ(after.totals().pushes_lost(), 9u);
  EXPECT_EQ(after.TotalsOf(kFirst.worker).pushes_lost(), 9u);
  Progress last;
  last.Restore(SavedBy(after));
  EXPECT_EQ(last.TakeUnreported(kFirst), 0u) << "once in all lives";
}

TEST(Progress, SlackIsTheSpreadOfLiveClocks) {
  Progress progress;
  progress.Heard(kFirst, Totals(9, 1), true, At(0));
  progress.Heard(kSecond, Totals(4, 1), true, At(0));
  EXPECT_EQ(progress.Report().slack, 5u);
  progress.Left(kSecond);
  progress.Heard(kFirst, Totals(20, 1), true, At(1));
  EXPECT_EQ(progress.Report().slack, 0u);
}

TEST(Progress, SlackThatWorkersMeasuredIsBelieved) {
  Progress progress;
  wire::WorkerProgress first = Totals(90, 1);
  first.set_slack_max(3);
  wire::WorkerProgress second = Totals(4, 1);
  second.set_slack_max(0);
  progress.Heard(kFirst, first, true, At(0));
  progress.Heard(kSecond, second, true, At(0));
  EXPECT_EQ(progress.Report().slack, 3u);
}

TEST(Progress, StalenessIsMeanOfTheIntervalAndLargestOfAll) {
  Progress progress;
  wire::WorkerProgress first = Totals(1, 1);
  first.set_staleness_sum(10);
  first.set_staleness_answers(4);
  first.set_staleness_max(6);
  progress.Heard(kFirst, first, true, At(0));
  EXPECT_DOUBLE_EQ(progress.Report().staleness_mean, 2.5);
  first.set_staleness_sum(11);
  first.set_staleness_answers(6);
  progress.Heard(kFirst, first, true, At(1));
  EXPECT_DOUBLE_EQ(progress.Report().staleness_mean, 0.5);
  EXPECT_EQ(progress.latest().staleness_max, 6u);
}

TEST(Progress, TheLastMeansOutliveTheScheduler) {
  Progress before;
  before.Heard(kFirst, Totals(1, 100, 200, 50), true, At(0));
  before.Report();
  state::Progress state;
  before.Save(state);
  Progress after;
  EXPECT_FALSE(after.latest().loss);
  after.Restore(state);
  EXPECT_DOUBLE_EQ(after.latest().loss.value_or(0), 2);
  EXPECT_DOUBLE_EQ(after.latest().accuracy.value_or(0), 0.5);
}

}  // namespace
}  // namespace slackline::scheduler::progress_test
