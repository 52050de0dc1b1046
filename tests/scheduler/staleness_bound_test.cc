#include "scheduler/watch/staleness_bound.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::scheduler::staleness_bound_test {
namespace {

using testing::HasSubstr;
using Interval = StalenessBound::Interval;

// Four workers, `wait` of whose time went by waiting.
Interval Waited(double wait, uint64_t slack_max, double staleness_mean = 3) {
  return {.compute_seconds = 10 * (1 - wait),
          .wait_seconds = 10 * wait,
          .staleness_mean = staleness_mean,
          .slack_max = slack_max,
          .live_workers = 4};
}

StalenessBound Automatic(uint64_t least, uint64_t most) {
  return StalenessBound({.least = least, .most = most, .automatic = true});
}

TEST(StalenessBound, BeginsTightAndIsLoosenedWhereItHoldsWorkers) {
  StalenessBound bound = Automatic(1, 16);
  EXPECT_EQ(bound.bound(), 1u);
  const auto change = bound.Observe(Waited(0.6, 1));
  ASSERT_TRUE(change);
  EXPECT_EQ(change->from, 1u);
  EXPECT_EQ(change->to, 2u);
  EXPECT_THAT(change->reason, HasSubstr("workers wait 60 % of their time"));
  // Each time it helps, and faster.
  for (const auto& [wait, expected] : {std::pair(0.5, 3), {0.4, 4}, {0.35, 6}, {0.3, 9}, {0.25, 13}, {0.21, 16}}) {
    bound.Observe(Waited(wait, 100));
    EXPECT_EQ(bound.bound(), static_cast<uint64_t>(expected)) << wait;
  }
  EXPECT_FALSE(bound.Observe(Waited(0.15, 100)));
}

TEST(StalenessBound, LooseningThatDidNotHelpIsTakenBackAndNotTriedForAWhile) {
  StalenessBound bound = Automatic(4, 16);
  bound.Observe(Waited(0.5, 4));
  ASSERT_EQ(bound.bound(), 6u);
  const auto change = bound.Observe(Waited(0.48, 6));
  ASSERT_TRUE(change);
  EXPECT_EQ(change->to, 4u);
  EXPECT_THAT(change->reason, HasSubstr("with a bound of 4 it was 50 %: loosening it did not help"));
  for (int interval = 0; interval < 9; ++interval) EXPECT_FALSE(bound.Observe(Waited(0.5, 4))) << interval;
  EXPECT_TRUE(bound.Observe(Waited(0.5, 4)));
}

struct BoundCase {
  const char* name;
  Interval interval;
  uint64_t expected;
};

void PrintTo(const BoundCase& test, std::ostream* out) { *out << test.name; }

class BoundOfThree : public testing::TestWithParam<BoundCase> {};

INSTANTIATE_TEST_SUITE_P(
    , BoundOfThree,
    testing::Values(
        BoundCase{"WaitsForTheNetwork", Waited(0.9, 2), 3}, BoundCase{"WaitsAtTheBound", Waited(0.9, 3), 4},
        BoundCase{"BetweenTheMarks", Waited(0.1, 3, 9), 3}, BoundCase{"StaleForNothing", Waited(0.01, 3, 3.5), 2},
        BoundCase{"AsFreshAsCanBe", Waited(0.01, 3, 3), 3}, BoundCase{"NothingDone", Interval{.live_workers = 4}, 3},
        BoundCase{"OneWorker", {.compute_seconds = 1, .wait_seconds = 9, .slack_max = 9, .live_workers = 1}, 3},
        BoundCase{"NoNumber",
                  {.compute_seconds = std::numeric_limits<double>::quiet_NaN(),
                   .wait_seconds = 1,
                   .slack_max = 9,
                   .live_workers = 4},
                  3}),
    [](const testing::TestParamInfo<BoundCase>& info) { return info.param.name; });

TEST_P(BoundOfThree, MovesTo) {
  StalenessBound bound = Automatic(1, 16);
  bound.Observe(Waited(0.6, 1));
  bound.Observe(Waited(0.5, 2));
  bound.Observe(Waited(0.1, 3));  // it helped
  ASSERT_EQ(bound.bound(), 3u);
  bound.Observe(GetParam().interval);
  EXPECT_EQ(bound.bound(), GetParam().expected);
}

TEST(StalenessBound, StaysWithinItsLimits) {
  StalenessBound bound = Automatic(2, 3);
  bound.Observe(Waited(0.9, 2));
  EXPECT_EQ(bound.bound(), 3u);
  bound.Observe(Waited(0.5, 3));
  EXPECT_FALSE(bound.Observe(Waited(0.5, 3)));
  bound.Observe(Waited(0, 3, 9));
  EXPECT_EQ(bound.bound(), 2u);
  EXPECT_FALSE(bound.Observe(Waited(0, 2, 9)));
}

TEST(StalenessBound, IsFixedUnlessTheJobWantsItAutomatic) {
  StalenessBound bound({.least = 1, .most = 4, .automatic = false});
  EXPECT_EQ(bound.bound(), 4u);
  EXPECT_FALSE(bound.Observe(Waited(0.9, 4)));
  EXPECT_FALSE(bound.Observe(Waited(0, 4, 9)));
}

TEST(StalenessBound, TightenedOnceItStaysSo) {
  StalenessBound bound = Automatic(1, 8);
  bound.Observe(Waited(0.9, 1));
  const auto change = bound.Tighten("the loss is 12");
  ASSERT_TRUE(change);
  EXPECT_EQ(change->to, 1u);
  EXPECT_EQ(change->reason, "the loss is 12");
  EXPECT_FALSE(bound.Tighten("the loss is 13"));
  EXPECT_FALSE(bound.Observe(Waited(0.9, 1)));
  StalenessBound fixed({.least = 0, .most = 4, .automatic = false});
  EXPECT_EQ(fixed.Tighten("the loss is 12")->to, 0u);
}

}  // namespace
}  // namespace slackline::scheduler::staleness_bound_test
