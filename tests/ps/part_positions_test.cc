#include "ps/host/part_positions.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::ps::part_positions_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const Sender kAlice = {WorkerId(1), Incarnation(1)};
const Sender kBob = {WorkerId(2), Incarnation(2)};

wire::DataProgress At(uint64_t records) {
  wire::DataProgress data;
  data.add_parts()->set_lease(7);
  data.mutable_parts(0)->set_records(records);
  return data;
}

class PartPositionsTest : public testing::Test {
 protected:
  PartPositionsTest() : engine_(Bsp()) { SetMembers(1, {kAlice, kBob}); }

  static EngineConfig Bsp() {
    EngineConfig config;
    config.mode = Mode::kBsp;
    return config;
  }

  PartPositions::Gone SetMembers(uint64_t epoch, const std::vector<Sender>& senders) {
    std::vector<MemberEntry> members;
    for (const Sender& sender : senders) members.push_back({sender, "worker"});
    const MemberSet set = {Epoch(epoch), members};
    const PartPositions::Gone gone = positions_.Of(engine_.PutOutBy(set), engine_);
    Actions actions;
    EXPECT_TRUE(engine_.SetMembers(set, actions).ok());
    positions_.Installed(Epoch(epoch), gone);
    return gone;
  }

  void Push(const Sender& sender, uint64_t sequence, uint64_t records) {
    positions_.Pushed({sender, Sequence(sequence)}, At(records), engine_.clock(sender.worker).value());
    Actions actions;
    engine_.Push({.sender = sender, .sequence = Sequence(sequence), .base = engine_.version(), .samples = 1, .at = {}},
                 actions);
  }

  uint64_t Position(const Sender& sender) {
    const PartPositions::Gone fenced = positions_.Fenced();
    return fenced.contains(sender) ? fenced.at(sender).at(0).records() : 0;
  }

  Engine engine_;
  PartPositions positions_;
};

TEST_F(PartPositionsTest, FencedWorkerHasThePositionOfItsLastAnsweredPush) {
  for (uint64_t step = 1; step <= 3; ++step) {
    Push(kAlice, step, 8 * step);
    Push(kBob, step, 10 * step);
  }
  // Under bsp this one is held for bob's, and is dropped with alice.
  Push(kAlice, 4, 32);
  SetMembers(2, {kBob});
  EXPECT_EQ(Position(kAlice), 24);
  EXPECT_EQ(Position(kBob), 0);
}

TEST_F(PartPositionsTest, WorkerWithoutAnAnswerIsUnknown) {
  Push(kAlice, 1, 8);
  SetMembers(2, {kBob});
  EXPECT_THAT(positions_.Fenced(), IsEmpty());
}

TEST_F(PartPositionsTest, NewLifeLeavesThePositionsOfTheOneBefore) {
  Push(kAlice, 1, 8);
  Push(kBob, 1, 10);
  SetMembers(2, {{kAlice.worker, Incarnation(3)}, kBob});
  EXPECT_EQ(Position(kAlice), 8);
}

TEST_F(PartPositionsTest, FencedWorkersAreForgottenAfterSomeSets) {
  Push(kAlice, 1, 8);
  Push(kBob, 1, 10);
  SetMembers(2, {kBob});
  SetMembers(18, {kBob});
  EXPECT_EQ(Position(kAlice), 8);
  SetMembers(19, {kBob});
  EXPECT_THAT(positions_.Fenced(), IsEmpty());
}

TEST(PartPositions, TooManyAreRefused) {
  wire::DataProgress data;
  for (int i = 0; i < PartPositions::kMax; ++i) data.add_parts();
  EXPECT_TRUE(PartPositions::Check(data).ok());
  data.add_parts();
  EXPECT_THAT(PartPositions::Check(data).message(), HasSubstr("257 parts of a stream; allowed are at most 256"));
}

}  // namespace
}  // namespace slackline::ps::part_positions_test
