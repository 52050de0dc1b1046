#include "worker/base/progress.h"

#include <gtest/gtest.h>

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
  const Progress progress = board.Take(kStart + absl::Seconds(10));
  EXPECT_EQ(progress.idle, absl::Seconds(8));
  EXPECT_EQ(progress.step_median, absl::Seconds(2));
  board.Reset(kStart + absl::Seconds(11));
  board.Computes(kStart + absl::Seconds(15), kLongest);
  EXPECT_EQ(board.Take(kStart + absl::Seconds(15)).idle, absl::ZeroDuration()) << "a new life has a first step, too";
}

}  // namespace
}  // namespace slackline::worker::progress_test
