#include "worker/client/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::worker::session_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr ShardId kFirst(0);
constexpr ShardId kSecond(1);
constexpr Version kStart{Lineage(1), 0};

// Two shards, connected, with weights of version 1.0 each.
Session Ready(Clock64 first_clock = Clock64(0)) {
  Session session(2, first_clock);
  session.Connected(kFirst);
  session.Connected(kSecond);
  for (const auto& send : session.BeginPull()) EXPECT_THAT(session.Pulled(send.shard, *send.pull, kStart), SizeIs(1));
  session.Take(first_clock);
  EXPECT_TRUE(session.idle());
  return session;
}

TEST(Session, AStepPushesAndPullsOnEveryShardAndEndsWhenAllHaveAnsweredAndServed) {
  Session session = Ready(Clock64(4));
  const auto sends = session.BeginStep();
  ASSERT_EQ(sends.size(), 2u);
  EXPECT_EQ(sends[0].push, Sequence(5));
  EXPECT_EQ(sends[0].clock, Clock64(5));
  EXPECT_EQ(sends[0].base, kStart);
  EXPECT_EQ(sends[0].known, kStart);
  EXPECT_TRUE(*session.Answered(kFirst, Sequence(5), Session::Outcome::kApplied));
  EXPECT_THAT(session.Pulled(kFirst, *sends[0].pull, {Lineage(1), 1}), SizeIs(1));
  EXPECT_THAT(session.Awaited(), ElementsAre(kSecond));
  EXPECT_EQ(session.clock(), Clock64(4));
  EXPECT_THAT(session.Pulled(kSecond, *sends[1].pull, {Lineage(1), 1}), SizeIs(1));
  EXPECT_FALSE(session.idle());
  EXPECT_TRUE(*session.Answered(kSecond, Sequence(5), Session::Outcome::kDiscarded));
  EXPECT_TRUE(session.idle());
  EXPECT_EQ(session.clock(), Clock64(5));
  EXPECT_EQ(session.applied(), 1u);
  EXPECT_EQ(session.discarded(), 1u);
}

TEST(Session, AfterABrokenStreamTheUnansweredPushIsSaidAgainWithTheSameNumberAndAFreshPull) {
  Session session = Ready();
  const auto sends = session.BeginStep();
  session.Disconnected(kFirst);
  const auto again = session.Connected(kFirst);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].push, Sequence(1));
  EXPECT_EQ(again[0].base, kStart);
  EXPECT_NE(again[0].pull, sends[0].pull);
  // The parameters may hold a part of the lost answer: all of it is pulled again.
  EXPECT_EQ(again[0].known, std::nullopt);
  EXPECT_FALSE(session.Awaits(kFirst, *sends[0].pull));
  EXPECT_THAT(session.Pulled(kFirst, *sends[0].pull, {Lineage(1), 1}), IsEmpty());
}

TEST(Session, AfterABrokenStreamAnAnsweredPushIsNotSaidAgain) {
  Session session = Ready();
  session.BeginStep();
  EXPECT_TRUE(*session.Answered(kFirst, Sequence(1), Session::Outcome::kApplied));
  session.Disconnected(kFirst);
  const auto again = session.Connected(kFirst);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].push, std::nullopt);
  EXPECT_EQ(session.last_answered(kFirst), Sequence(1));
}

TEST(Session, NothingIsSaidAgainWhereNothingIsAwaited) {
  Session session = Ready();
  session.Disconnected(kFirst);
  EXPECT_THAT(session.Connected(kFirst), IsEmpty());
}

TEST(Session, ShardsThatAreNotConnectedGetTheirShareWhenTheyAre) {
  Session session = Ready();
  session.Disconnected(kSecond);
  EXPECT_EQ(session.BeginStep().size(), 1u);
  const auto later = session.Connected(kSecond);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].push, Sequence(1));
}

TEST(Session, RepeatedAnswersCountOnceAndUnsentOnesAreAnError) {
  Session session = Ready();
  session.BeginStep();
  EXPECT_TRUE(*session.Answered(kFirst, Sequence(1), Session::Outcome::kApplied));
  EXPECT_FALSE(*session.Answered(kFirst, Sequence(1), Session::Outcome::kApplied));
  EXPECT_EQ(session.applied(), 1u);
  EXPECT_EQ(session.Answered(kFirst, Sequence(2), Session::Outcome::kApplied).status().code(),
            absl::StatusCode::kInternal);
}

TEST(Session, ANewLineageIsWhatTheNextGradientComesFrom) {
  Session session = Ready();
  auto sends = session.BeginStep();
  for (const auto& send : sends) {
    EXPECT_TRUE(session.Answered(send.shard, Sequence(1), Session::Outcome::kDiscarded).ok());
    EXPECT_THAT(session.Pulled(send.shard, *send.pull, {Lineage(2), 0}), SizeIs(1));
  }
  session.Take(Clock64(1));
  sends = session.BeginStep();
  EXPECT_EQ(sends[0].base, (Version{Lineage(2), 0}));
  EXPECT_THAT(session.Awaited(), ElementsAre(kFirst, kSecond));
}

// --- Several steps in flight --------------------------------------------------------------------------------------

TEST(Session, StepsFinishInOrderWhateverTheOrderOfTheirShards) {
  Session session = Ready();
  const auto first = session.BeginStep();
  const auto second = session.BeginStep();
  for (const Sequence sequence : {Sequence(1), Sequence(2)}) {
    EXPECT_TRUE(*session.Answered(kFirst, sequence, Session::Outcome::kApplied));
  }
  EXPECT_THAT(session.Pulled(kFirst, *first[0].pull, {Lineage(1), 1}), SizeIs(1));
  EXPECT_THAT(session.Pulled(kFirst, *second[0].pull, {Lineage(1), 2}), SizeIs(1));
  EXPECT_EQ(session.finished(), Sequence(0));
  EXPECT_TRUE(*session.Answered(kSecond, Sequence(1), Session::Outcome::kApplied));
  EXPECT_EQ(session.clock(), Clock64(1));
  EXPECT_THAT(session.Pulled(kSecond, *first[1].pull, {Lineage(1), 1}), SizeIs(1));
  EXPECT_EQ(session.finished(), Sequence(1));
  EXPECT_TRUE(*session.Answered(kSecond, Sequence(2), Session::Outcome::kApplied));
  EXPECT_THAT(session.Pulled(kSecond, *second[1].pull, {Lineage(1), 2}), SizeIs(1));
  EXPECT_EQ(session.finished(), Sequence(2));
  EXPECT_EQ(session.clock(), Clock64(2));
  EXPECT_TRUE(session.idle());
}

TEST(Session, ALaterPullServesTheEarlierOnesToo) {
  Session session = Ready();
  session.BeginStep();
  const auto second = session.BeginStep();
  for (const ShardId shard : {kFirst, kSecond}) {
    EXPECT_TRUE(*session.Answered(shard, Sequence(1), Session::Outcome::kApplied));
    EXPECT_THAT(session.Pulled(shard, *second[0].pull, {Lineage(1), 2}), ElementsAre(Clock64(1), Clock64(2)));
  }
  EXPECT_EQ(session.finished(), Sequence(1));
  for (const ShardId shard : {kFirst, kSecond}) {
    EXPECT_TRUE(*session.Answered(shard, Sequence(2), Session::Outcome::kApplied));
  }
  EXPECT_TRUE(session.idle());
}

TEST(Session, GradientsComeFromWhatWasTakenNotFromWhatHasArrived) {
  Session session = Ready();
  const auto first = session.BeginStep();
  const auto second = session.BeginStep();
  EXPECT_THAT(session.Pulled(kFirst, *first[0].pull, {Lineage(1), 7}), SizeIs(1));
  EXPECT_THAT(session.Pulled(kFirst, *second[0].pull, {Lineage(1), 8}), SizeIs(1));
  EXPECT_EQ(session.BeginStep()[0].base, kStart);
  session.Take(Clock64(1));
  EXPECT_EQ(session.BeginStep()[0].base, (Version{Lineage(1), 7}));
  session.Take(Clock64(2));
  EXPECT_EQ(session.BeginStep()[0].base, (Version{Lineage(1), 8}));
}

TEST(Session, AfterABrokenStreamAllThatIsInFlightIsSaidAgainInOrder) {
  Session session = Ready();
  session.BeginStep();
  session.BeginStep();
  EXPECT_TRUE(*session.Answered(kFirst, Sequence(1), Session::Outcome::kApplied));
  session.Disconnected(kFirst);
  auto again = session.Connected(kFirst);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].push, std::nullopt);
  EXPECT_EQ(again[0].clock, Clock64(1));
  EXPECT_EQ(again[1].push, Sequence(2));
  EXPECT_EQ(again[1].clock, Clock64(2));
  EXPECT_THAT(session.Pulled(kFirst, *again[1].pull, {Lineage(1), 3}), SizeIs(2));
  session.Disconnected(kFirst);
  again = session.Connected(kFirst);
  ASSERT_EQ(again.size(), 1u);  // the push alone
  EXPECT_EQ(again[0].push, Sequence(2));
  EXPECT_EQ(again[0].pull, std::nullopt);
}

}  // namespace
}  // namespace slackline::worker::session_test
