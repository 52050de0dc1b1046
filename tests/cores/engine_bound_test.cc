// The staleness bound of ssp, changed while workers run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/cores/engine_fixture.h"

namespace slackline::ps::engine_bound_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Sender kA = {WorkerId(1), Incarnation(1)};
const Sender kB = {WorkerId(2), Incarnation(2)};

class EngineBoundTest : public EngineTest {
 protected:
  std::vector<std::string> Bound(uint64_t bound) {
    Actions actions;
    engine_->SetStalenessBound(bound, actions);
    return Lines(actions);
  }
};

TEST_F(EngineBoundTest, LargerBoundLetsWaitingPullsGoAtOnce) {
  Start(Mode::kSsp, {kA, kB}, /*bound=*/0);
  Push(kA, 1);
  EXPECT_THAT(Pull(kA, 1, 1), IsEmpty());
  EXPECT_THAT(Bound(1), ElementsAre("serve 1 pull 1"));
  Push(kA, 2);
  EXPECT_THAT(Pull(kA, 2, 2), IsEmpty());
}

TEST_F(EngineBoundTest, SmallerBoundHoldsNobodyForMoreThanItself) {
  Start(Mode::kSsp, {kA, kB}, /*bound=*/4);
  for (uint64_t clock = 1; clock <= 4; ++clock) {
    Push(kA, clock);
    EXPECT_THAT(Pull(kA, clock, clock), ElementsAre(HasSubstr("serve 1"))) << clock;
  }
  EXPECT_THAT(Bound(1), IsEmpty());
  Push(kA, 5);
  EXPECT_THAT(Pull(kA, 5, 5), IsEmpty());
  for (uint64_t clock = 1; clock <= 3; ++clock) {
    EXPECT_THAT(Push(kB, clock), testing::Not(testing::Contains("serve 1 pull 5"))) << clock;
  }
  EXPECT_THAT(Push(kB, 4), testing::Contains("serve 1 pull 5")) << "one clock behind, as the bound allows";
}

TEST_F(EngineBoundTest, PullThatWaitsAlreadyWaitsForNoMoreThanASmallerBound) {
  Start(Mode::kSsp, {kA, kB}, /*bound=*/2);
  for (uint64_t clock = 1; clock <= 3; ++clock) Push(kA, clock);
  EXPECT_THAT(Pull(kA, 3, 3), IsEmpty());
  EXPECT_THAT(Bound(0), IsEmpty());
  Push(kB, 1);
  Push(kB, 2);
  EXPECT_EQ(engine_->waiting_pulls(), 1u);
  EXPECT_THAT(Push(kB, 3), testing::Contains("serve 1 pull 3"));
}

TEST_F(EngineBoundTest, EarlierStatesAreServedByTheBoundOfNow) {
  Start(Mode::kSsp, {kA, kB}, /*bound=*/0);
  Push(kA, 1);
  EXPECT_FALSE(engine_->MayServe({engine_->version(), Clock64(0)}, kA, Clock64(1)));
  Bound(1);
  EXPECT_TRUE(engine_->MayServe({engine_->version(), Clock64(0)}, kA, Clock64(1)));
}

TEST_F(EngineBoundTest, OtherModesHaveNone) {
  Start(Mode::kBsp, {kA, kB});
  Push(kA, 1);
  EXPECT_THAT(Pull(kA, 1, 1), IsEmpty());
  EXPECT_THAT(Bound(9), IsEmpty());
  EXPECT_EQ(engine_->waiting_pulls(), 1u);
}

}  // namespace
}  // namespace slackline::ps::engine_bound_test
