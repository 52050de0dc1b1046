#include "scheduler/checkpoint/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::scheduler::checkpoints_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr absl::Time kBegin = absl::FromUnixSeconds(1000);
constexpr absl::Duration kTimeout = absl::Seconds(60), kServersMax = absl::Seconds(5);
constexpr ServerId kServer(1);

class CheckpointsTest : public testing::Test {
 protected:
  CheckpointsTest() {
    job::Checkpoint& checkpoint = *config_.job.mutable_checkpoint();
    checkpoint.set_every_epochs(2);
    checkpoint.set_at_end(true);
    checkpoint.set_timeout_s(static_cast<uint32_t>(absl::ToInt64Seconds(kTimeout)));
    config_.id = JobId(7);
    config_.folder = "/checkpoints";
    config_.servers_max = kServersMax;
    facts_.now = kBegin;
    facts_.began = kBegin;
    facts_.samples = 100;
  }

  Checkpoints& checkpoints() {
    if (!checkpoints_) checkpoints_.emplace(config_, events_, room_);
    return *checkpoints_;
  }
  void Pass(absl::Duration time) { facts_.now += time; }
  void Begin(const std::string& reason) {
    state::Scheduler state;
    state.mutable_progress()->mutable_totals()->set_samples(facts_.samples);
    state.mutable_tasks()->mutable_ranges()->set_epochs_done(facts_.epochs);
    checkpoints().Begin(reason, state, {}, {{kServer, "ps-1"}}, facts_);
    const std::optional<wire::BeginCheckpointRequest> call = checkpoints().TakeCall();
    ASSERT_TRUE(call);
    EXPECT_FALSE(checkpoints().TakeCall()) << "once each";
    attempt_ = call->attempt();
    wire::BeginCheckpointReply reply;
    reply.set_begun(true);
    checkpoints().Answered(kServer, *call, reply, facts_);
  }
  // The server says that its part is written, or what went wrong.
  void Hear(const std::string& error, bool no_room = false) {
    wire::CheckpointProgress progress;
    progress.set_checkpoint(checkpoints().last_number());
    progress.set_attempt(attempt_);
    progress.set_done(true);
    progress.set_error(error);
    progress.set_no_room(no_room);
    if (error.empty()) progress.add_files()->set_bytes(1000);
    EXPECT_EQ(checkpoints().Heard(kServer, progress, facts_), checkpoints().last_number());
  }
  void Make(const std::string& reason) {
    Begin(reason);
    Hear("");
    ASSERT_TRUE(checkpoints().to_commit());
    checkpoints().Committed("/checkpoints/one", facts_);
  }

  Checkpoints::Config config_;
  EventLog events_;
  RoomWait room_{kTimeout};
  Checkpoints::Facts facts_;
  std::optional<Checkpoints> checkpoints_;
  uint32_t attempt_ = 0;
};

TEST_F(CheckpointsTest, AreDueEveryFewEpochs) {
  facts_.epochs = 1;
  EXPECT_FALSE(checkpoints().Due(facts_));
  facts_.epochs = 2;
  EXPECT_THAT(checkpoints().Due(facts_), Optional(Eq("every 2 epochs")));
  facts_.possible = absl::UnavailableError("ps-1 is not there");
  EXPECT_FALSE(checkpoints().Due(facts_));
  facts_.possible = absl::OkStatus();
  Make("every 2 epochs");
  EXPECT_EQ(checkpoints().whole(), 1);
  EXPECT_EQ(checkpoints().folder(), "/checkpoints/one");
  EXPECT_THAT(checkpoints().samples(), Optional(Eq(100)));
  EXPECT_THAT(events_.Take(), ElementsAre(HasSubstr("checkpoint 1 is on disk: 100 samples, 1000 bytes, in 0.00 s")));
  facts_.epochs = 3;
  EXPECT_FALSE(checkpoints().Due(facts_));
}

TEST_F(CheckpointsTest, OneThatFailedIsDueAgainLater) {
  checkpoints().KeepBest({.epoch = 1, .accuracy = 0.5});
  EXPECT_THAT(checkpoints().Due(facts_), Optional(HasSubstr("after epoch 1")));
  Begin("best");
  EXPECT_FALSE(checkpoints().Due(facts_)) << "one at a time";
  Hear("the disk is gone");
  EXPECT_FALSE(checkpoints().in_progress());
  EXPECT_EQ(checkpoints().failed(), 1);
  EXPECT_THAT(events_.Take(), ElementsAre(HasSubstr("the disk is gone")));
  Pass(absl::Seconds(29));
  EXPECT_FALSE(checkpoints().Due(facts_));
  Pass(absl::Seconds(1));
  EXPECT_THAT(checkpoints().Due(facts_), Optional(HasSubstr("after epoch 1")));
}

TEST_F(CheckpointsTest, OneThatTakesTooLongFails) {
  Begin("on demand");
  Pass(kTimeout + absl::Seconds(1));
  checkpoints().Tick(facts_);
  EXPECT_FALSE(checkpoints().in_progress());
  EXPECT_EQ(checkpoints().failures(), 1);
}

TEST_F(CheckpointsTest, TheLastOneWaitsForServersForAWhile) {
  facts_.ended = true;
  facts_.possible = absl::UnavailableError("ps-1 is not there");
  EXPECT_EQ(checkpoints().LastOne(facts_), Checkpoints::Last::kWait);
  Pass(kServersMax);
  EXPECT_EQ(checkpoints().LastOne(facts_), Checkpoints::Last::kWait);
  Pass(absl::Seconds(1));
  EXPECT_EQ(checkpoints().LastOne(facts_), Checkpoints::Last::kNothing);
  EXPECT_THAT(events_.Take(), ElementsAre(HasSubstr("checkpoint 1 failed: ps-1 is not there")));
}

TEST_F(CheckpointsTest, TheLastOneIsMadeOnceAndOnlyOfWhatIsNew) {
  facts_.ended = true;
  EXPECT_EQ(checkpoints().LastOne(facts_), Checkpoints::Last::kBegin);
  Begin("training is complete");
  EXPECT_EQ(checkpoints().LastOne(facts_), Checkpoints::Last::kWait);
  Hear("");
  EXPECT_EQ(checkpoints().LastOne(facts_), Checkpoints::Last::kWait) << "its folder has no name yet";
  checkpoints().Committed("/checkpoints/one", facts_);
  EXPECT_EQ(checkpoints().LastOne(facts_), Checkpoints::Last::kNothing);

  Checkpoints kept(config_, events_, room_);
  checkpoint::Manifest manifest;
  manifest.set_number(9);
  kept.GoOnFrom(manifest, "/checkpoints/nine", facts_);
  EXPECT_EQ(kept.LastOne(facts_), Checkpoints::Last::kNothing) << "nothing was trained since";
}

TEST_F(CheckpointsTest, TheLastOneWaitsForRoom) {
  facts_.ended = true;
  ASSERT_EQ(checkpoints().LastOne(facts_), Checkpoints::Last::kBegin);
  Begin("training is complete");
  Hear("no room", /*no_room=*/true);
  EXPECT_EQ(room_.Waited(kBegin), absl::ZeroDuration());
  EXPECT_THAT(events_.Take(), ElementsAre(HasSubstr("it is tried again for 1m")));
  EXPECT_EQ(checkpoints().LastOne(facts_), Checkpoints::Last::kWait);
  Pass(absl::Seconds(2));
  EXPECT_EQ(checkpoints().LastOne(facts_), Checkpoints::Last::kBegin);
  Begin("training is complete");
  Pass(kTimeout);
  Hear("no room", /*no_room=*/true);
  EXPECT_EQ(checkpoints().LastOne(facts_), Checkpoints::Last::kNothing);
  EXPECT_THAT(events_.Take(), ElementsAre(HasSubstr("given up after 1m2s")));
}

TEST_F(CheckpointsTest, ARestartedSchedulerLeavesOutNumbersAndKeepsTheBest) {
  Make("every 2 epochs");
  checkpoints().KeepBest({.epoch = 4, .accuracy = 0.5});
  Begin("best");
  state::Scheduler state;
  checkpoints().Save(state);
  Checkpoints next(config_, events_, room_);
  next.Restore(state, kBegin);
  EXPECT_EQ(next.last_number(), 12);
  EXPECT_EQ(next.whole(), 1);
  EXPECT_THAT(next.Due(facts_), Optional(HasSubstr("after epoch 4")));
}

}  // namespace
}  // namespace slackline::scheduler::checkpoints_test
