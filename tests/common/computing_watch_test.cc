#include "common/time/computing_watch.h"

#include <gtest/gtest.h>

namespace slackline::computing_watch_test {
namespace {

TEST(ComputingWatch, ProcessThatUsesAProcessorComputesAndOneThatBeatsOnlyDoesNot) {
  ManualTime time, processor;
  ComputingWatch watch(time, processor);
  const auto pass = [&](absl::Duration passed, absl::Duration used) {
    time.Advance(passed);
    processor.Advance(used);
    EXPECT_EQ(watch.window(), passed);
    return watch.Computed();
  };
  EXPECT_TRUE(pass(absl::Seconds(10), absl::Seconds(10)));
  EXPECT_TRUE(pass(absl::Seconds(10), absl::Seconds(80))) << "several threads";
  EXPECT_TRUE(pass(absl::Seconds(10), absl::Milliseconds(500))) << "a busy machine";
  EXPECT_FALSE(pass(absl::Seconds(10), absl::Milliseconds(499))) << "each look is about the time since the last one";
  EXPECT_FALSE(pass(absl::Seconds(10), absl::ZeroDuration()));
}

TEST(ComputingWatch, ProcessTimeIsThatOfAllThreads) {
  const ProcessTime process;
  const ThreadTime thread;
  const absl::Time process_before = process.Now(), thread_before = thread.Now();
  while (thread.Now() - thread_before < absl::Milliseconds(5)) {
  }
  EXPECT_GE(process.Now() - process_before, absl::Milliseconds(5));
}

TEST(ComputingPatience, LastsWhileTheProcessComputesAndNotForEver) {
  const ThreadTime thread;
  const auto compute = [&] {
    for (const absl::Time end = thread.Now() + absl::Milliseconds(20); thread.Now() < end;) {
    }
  };
  ComputingPatience none(1), some(3);
  compute();
  EXPECT_FALSE(none.Lasts());
  EXPECT_TRUE(some.Lasts());
  compute();
  EXPECT_TRUE(some.Lasts());
  compute();
  EXPECT_FALSE(some.Lasts());
  EXPECT_EQ(some.waited(), 3);
}

}  // namespace
}  // namespace slackline::computing_watch_test
