// Checkpoint rounds: the versions at which the shards are cut, and who is named if a round fails.
#include "scheduler/checkpoint/checkpoint_round.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slackline::scheduler::checkpoint_round_test {
namespace {

using ::testing::HasSubstr;

constexpr ServerId kOne{1}, kTwo{2};

class CheckpointRoundTest : public testing::Test {
 protected:
  static CheckpointRound Begin(bool aligned) {
    return CheckpointRound({.number = 5,
                            .reason = "test",
                            .aligned = aligned,
                            .apart_max = 1,
                            .servers = {{kOne, "ps-1"}, {kTwo, "ps-2"}},
                            .begun = absl::UnixEpoch(),
                            .timeout = absl::Seconds(10)});
  }
  static wire::BeginCheckpointReply Reply(bool begun, uint64_t version_min, uint64_t version_max) {
    wire::BeginCheckpointReply reply;
    reply.set_begun(begun);
    reply.set_version_min(version_min);
    reply.set_version_max(version_max);
    return reply;
  }
  // Answers the first call with versions that are far apart. Returns the next call.
  static std::optional<CheckpointRound::Call> AnsweredApart(CheckpointRound& round) {
    const auto call = round.TakeCall();
    round.Answered(kOne, *call, Reply(false, 40, 41));
    round.Answered(kTwo, *call, Reply(false, 50, 50));
    return round.TakeCall();
  }
  // Of shards that begin at these elements.
  static wire::CheckpointProgress Done(uint32_t attempt, const std::vector<uint64_t>& begins) {
    wire::CheckpointProgress progress;
    progress.set_checkpoint(5);
    progress.set_attempt(attempt);
    progress.set_done(true);
    for (const uint64_t begin : begins) progress.add_files()->set_begin(begin);
    return progress;
  }
};

TEST_F(CheckpointRoundTest, EachShardIsCutWhereItIs) {
  CheckpointRound round = Begin(false);
  const auto call = round.TakeCall();
  ASSERT_TRUE(call.has_value());
  EXPECT_FALSE(call->ask_only);
  EXPECT_FALSE(call->at_version.has_value());
  EXPECT_FALSE(round.TakeCall().has_value()) << "once";
  round.Answered(kOne, *call, Reply(true, 10, 12));
  round.Answered(kTwo, *call, Reply(true, 11, 19));
  EXPECT_FALSE(round.TakeCall().has_value());
  EXPECT_TRUE(round.Heard(kTwo, Done(1, {20, 30})));
  EXPECT_FALSE(round.over());
  EXPECT_TRUE(round.Heard(kOne, Done(1, {0, 10})));
  EXPECT_TRUE(round.Heard(kOne, Done(1, {0, 10}))) << "it is told until it was heard";
  ASSERT_TRUE(round.over());
  EXPECT_EQ(round.error(), "");
  const auto files = round.Files();
  ASSERT_EQ(files.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(files[i].begin(), 10 * i);
}

TEST_F(CheckpointRoundTest, AllShardsAreCutAtTheLargestVersion) {
  CheckpointRound round = Begin(true);
  auto call = round.TakeCall();
  ASSERT_TRUE(call && call->ask_only);
  round.Answered(kOne, *call, Reply(false, 40, 41));
  EXPECT_FALSE(round.TakeCall().has_value()) << "not before all have answered";
  round.Answered(kTwo, *call, Reply(false, 40, 40));
  call = round.TakeCall();
  ASSERT_TRUE(call.has_value());
  EXPECT_FALSE(call->ask_only);
  EXPECT_EQ(call->at_version, 41);
  round.Answered(kOne, *call, Reply(true, 41, 41));
  round.Answered(kTwo, *call, Reply(true, 40, 40));
  round.Heard(kOne, Done(call->attempt, {0}));
  round.Heard(kTwo, Done(call->attempt, {10}));
  EXPECT_TRUE(round.over());
}

// One that has come back from a snapshot is steps behind for good: its version is another step than the others'.
TEST_F(CheckpointRoundTest, ShardsThatAreFarApartAreCutWhereTheyAre) {
  CheckpointRound round = Begin(true);
  auto call = round.TakeCall();
  round.Answered(kOne, *call, Reply(false, 41, 41));
  round.Answered(kTwo, *call, Reply(false, 39, 41));
  call = round.TakeCall();
  ASSERT_TRUE(call.has_value());
  EXPECT_FALSE(call->ask_only);
  EXPECT_FALSE(call->at_version.has_value());
  round.Heard(kOne, Done(call->attempt, {0}));
  round.Heard(kTwo, Done(call->attempt, {10}));
  EXPECT_TRUE(round.over());
}

// Two servers that take the same steps answer at different moments.
TEST_F(CheckpointRoundTest, AnswersOfDifferentMomentsAreAskedForAgain) {
  CheckpointRound round = Begin(true);
  auto call = AnsweredApart(round);
  ASSERT_TRUE(call && call->ask_only);
  round.Answered(kOne, *call, Reply(false, 60, 60));
  round.Answered(kTwo, *call, Reply(false, 60, 61));
  call = round.TakeCall();
  ASSERT_TRUE(call && !call->ask_only);
  EXPECT_EQ(call->at_version, 61);
}

TEST_F(CheckpointRoundTest, AServerThatStaysBehindIsCutWhereItIs) {
  CheckpointRound round = Begin(true);
  auto call = AnsweredApart(round);
  ASSERT_TRUE(call && call->ask_only);
  // This is later than the answers before, and the version is smaller.
  round.Answered(kOne, *call, Reply(false, 43, 43));
  round.Answered(kTwo, *call, Reply(false, 52, 53));
  call = round.TakeCall();
  ASSERT_TRUE(call && !call->ask_only);
  EXPECT_FALSE(call->at_version);
}

TEST_F(CheckpointRoundTest, ServersAreAskedAFewTimesAtMost) {
  CheckpointRound round = Begin(true);
  auto call = round.TakeCall();
  for (uint64_t version = 0; call && call->ask_only; version += 100) {
    ASSERT_LE(call->attempt, CheckpointRound::kAsksMax);
    round.Answered(kOne, *call, Reply(false, version, version));
    round.Answered(kTwo, *call, Reply(false, version + 50, version + 50));
    call = round.TakeCall();
  }
  ASSERT_TRUE(call);
  EXPECT_EQ(call->attempt, CheckpointRound::kAsksMax + 1);
  EXPECT_FALSE(call->at_version);
}

TEST_F(CheckpointRoundTest, ShardsThatRunOnAreCaughtFurtherAndFurtherAhead) {
  CheckpointRound round = Begin(true);
  uint64_t version = 100;
  std::vector<uint64_t> ahead;
  for (int i = 0; i < 6; ++i) {
    const auto call = round.TakeCall();
    ASSERT_TRUE(call.has_value());
    if (call->at_version) ahead.push_back(*call->at_version - version);
    version += 50;
    round.Answered(kOne, *call, Reply(false, version, version));
    round.Answered(kTwo, *call, Reply(true, version - 1, version - 1));
  }
  EXPECT_THAT(ahead, testing::ElementsAre(0, 1, 2, 4, 8));
}

TEST_F(CheckpointRoundTest, WhatIsLateOfAnEarlierAttemptIsNotTaken) {
  CheckpointRound round = Begin(true);
  const auto asked = *round.TakeCall();
  round.Answered(kOne, asked, Reply(false, 1, 1));
  round.Answered(kTwo, asked, Reply(false, 1, 1));
  const auto first = *round.TakeCall();
  round.Answered(kOne, first, Reply(true, 1, 1));
  round.Answered(kTwo, first, Reply(false, 2, 2));
  const auto second = *round.TakeCall();
  EXPECT_FALSE(round.Heard(kOne, Done(first.attempt, {0}))) << "it is of another cut";
  round.Answered(kTwo, first, Reply(false, 2, 2));
  EXPECT_FALSE(round.TakeCall().has_value());
  round.Heard(kOne, Done(second.attempt, {0}));
  round.Heard(kTwo, Done(second.attempt, {1}));
  EXPECT_TRUE(round.over());
}

TEST_F(CheckpointRoundTest, WhoSpoilsItIsNamed) {
  CheckpointRound refused = Begin(false);
  refused.Answered(kTwo, *refused.TakeCall(), absl::FailedPreconditionError("shard 9 has no weights yet"));
  EXPECT_EQ(refused.error(), "server ps-2 refuses: shard 9 has no weights yet");

  CheckpointRound failed = Begin(false);
  wire::CheckpointProgress full = Done(1, {});
  full.set_error("the disk is full");
  EXPECT_TRUE(failed.Heard(kOne, full));
  EXPECT_EQ(failed.error(), "server ps-1 could not write: the disk is full");

  CheckpointRound died = Begin(false);
  died.ServerLost(ServerId(9));
  EXPECT_FALSE(died.over());
  died.ServerLost(kOne);
  EXPECT_EQ(died.error(), "server ps-1 died");
}

TEST_F(CheckpointRoundTest, WhoIsAwaitedForTooLongIsNamed) {
  CheckpointRound round = Begin(true);
  const auto asked = *round.TakeCall();
  round.Answered(kOne, asked, Reply(false, 7, 7));
  round.Tick(absl::UnixEpoch() + absl::Seconds(10));
  EXPECT_FALSE(round.over());
  round.Answered(kTwo, asked, Reply(false, 6, 7));
  const auto call = *round.TakeCall();
  round.Answered(kOne, call, Reply(true, 7, 7));
  round.Heard(kOne, Done(call.attempt, {0}));
  round.Answered(kTwo, call, Reply(true, 6, 7));
  wire::CheckpointProgress waits;
  waits.set_checkpoint(5);
  waits.set_attempt(call.attempt);
  waits.set_awaited_shard(3);
  waits.set_awaited_version(6);
  EXPECT_FALSE(round.Heard(kTwo, waits));
  round.Tick(absl::UnixEpoch() + absl::Seconds(11));
  EXPECT_EQ(
      round.error(),
      "it took more than 10s (checkpoint.timeout_s); still awaited: server ps-2 (its shard 3 is at version 6, the "
      "cut is at 7)");
}

}  // namespace
}  // namespace slackline::scheduler::checkpoint_round_test
