#include "scheduler/watch/training_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::scheduler::training_watch_test {
namespace {

using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr absl::Time kBegin = absl::FromUnixSeconds(1000);

job::Job Ssp() {
  job::Job job;
  job.mutable_cluster()->set_workers(2);
  job.mutable_training()->set_batch_size(10);
  job.mutable_consistency()->set_mode(job::Consistency::SSP);
  job.mutable_consistency()->set_staleness_min(1);
  job.mutable_consistency()->set_staleness_max(8);
  job.mutable_consistency()->set_staleness_auto(true);
  return job;
}

// Totals of workers that wait for half of their time.
state::Totals Waiting(uint64_t steps) {
  state::Totals totals;
  totals.set_steps(steps);
  totals.set_compute_seconds(static_cast<double>(steps));
  totals.set_wait_seconds(static_cast<double>(steps));
  return totals;
}

TEST(TrainingWatch, TheBoundIsDecidedOnStepsAndTime) {
  TrainingWatch watch(Ssp());
  watch.Begin(Waiting(0), kBegin);
  ASSERT_THAT(watch.bound(), Optional(Eq(1)));
  // Both must be enough: two seconds, and eight steps of each worker.
  EXPECT_FALSE(watch.AdjustBound(Waiting(100), 1, 2, kBegin + absl::Seconds(1)));
  EXPECT_FALSE(watch.AdjustBound(Waiting(15), 1, 2, kBegin + absl::Seconds(3)));
  const std::optional<StalenessBound::Change> change = watch.AdjustBound(Waiting(16), 0, 2, kBegin + absl::Seconds(3));
  ASSERT_TRUE(change) << "the slack of earlier calls counts as well";
  EXPECT_EQ(change->from, 1);
  EXPECT_EQ(change->to, 2);
  EXPECT_THAT(watch.bound(), Optional(Eq(2)));
  EXPECT_EQ(watch.bound_changes(), 1);
  // The next interval begins here.
  EXPECT_FALSE(watch.AdjustBound(Waiting(40), 2, 2, kBegin + absl::Seconds(4)));
}

TEST(TrainingWatch, WhatWasTrainedBeforeItBeginsCountsForNothing) {
  TrainingWatch watch(Ssp());
  watch.Begin(Waiting(1000), kBegin);
  EXPECT_FALSE(watch.AdjustBound(Waiting(1010), 1, 2, kBegin + absl::Seconds(60)));
}

TEST(TrainingWatch, OtherModesHaveNoBound) {
  job::Job job = Ssp();
  job.mutable_consistency()->set_mode(job::Consistency::ASYNC);
  TrainingWatch watch(job);
  watch.Begin({}, kBegin);
  EXPECT_FALSE(watch.bound());
  EXPECT_FALSE(watch.AdjustBound(Waiting(1000), 9, 2, kBegin + absl::Seconds(60)));
  EXPECT_FALSE(watch.TightenBound("for no reason"));
  EXPECT_EQ(watch.bound_changes(), 0);
}

TEST(TrainingWatch, DivergenceIsFoundInWhatIsNew) {
  job::Job job = Ssp();
  job.mutable_guard()->set_gradient_norm_max(5);
  TrainingWatch watch(job);
  state::Totals totals;
  totals.set_samples(10);
  EXPECT_FALSE(watch.FindDivergence(totals, 4, kBegin));
  EXPECT_FALSE(watch.diverged_at());
  totals.set_samples(20);
  const std::optional<std::string> alarm = watch.FindDivergence(totals, 6, kBegin + absl::Seconds(1));
  ASSERT_TRUE(alarm);
  EXPECT_THAT(*alarm, HasSubstr("6"));
  EXPECT_EQ(watch.divergences(), 1);
  EXPECT_THAT(watch.diverged_at(), Optional(Eq(kBegin + absl::Seconds(1))));
}

TEST(TrainingWatch, GoesOnFromSavedState) {
  TrainingWatch first(Ssp());
  first.Begin(Waiting(0), kBegin);
  ASSERT_TRUE(first.AdjustBound(Waiting(100), 1, 2, kBegin + absl::Seconds(3)));
  state::Scheduler state;
  first.Save(state);
  TrainingWatch next(Ssp());
  next.Restore(state, Waiting(100));
  EXPECT_THAT(next.bound(), Optional(Eq(2)));
  EXPECT_EQ(next.bound_changes(), 1);
  // Without Begin() nothing is decided.
  EXPECT_FALSE(next.AdjustBound(Waiting(1000), 9, 2, kBegin + absl::Hours(1)));
}

}  // namespace
}  // namespace slackline::scheduler::training_watch_test
