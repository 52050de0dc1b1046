#include "worker/scheduler_link/member_state.h"

#include <gtest/gtest.h>

namespace slackline::worker::member_state_test {
namespace {

using News = MemberState::News;

constexpr Incarnation kLife(3);
const absl::Time kBegin = absl::UnixEpoch();
const absl::Duration kSilence = absl::Seconds(10);

MemberState Registered() {
  MemberState member("the scheduler", kSilence);
  wire::RegisterWorkerReply reply;
  reply.set_worker(1);
  reply.set_incarnation(kLife.value());
  member.Registered(reply, kBegin);
  return member;
}

wire::HeartbeatReply Live() {
  wire::HeartbeatReply reply;
  reply.set_state(wire::WORKER_LIVE);
  reply.set_first_clock(5);
  reply.set_send_seed(true);
  return reply;
}

TEST(MemberState, AWorkerIsLiveOnceAndKnowsWhereItBegins) {
  MemberState member = Registered();
  EXPECT_EQ(member.Heard(kLife, wire::HeartbeatReply(), kBegin), News::kNone);
  EXPECT_FALSE(member.live());
  EXPECT_EQ(member.Heard(kLife, Live(), kBegin), News::kLive);
  EXPECT_EQ(member.life().first_clock, Clock64(5));
  EXPECT_TRUE(member.life().send_seed);
  wire::HeartbeatReply later = Live();
  later.set_first_clock(9);
  EXPECT_EQ(member.Heard(kLife, later, kBegin), News::kNone);
  EXPECT_EQ(member.life().first_clock, Clock64(5));
}

TEST(MemberState, AnAnswerToAnEarlierLifeIsNoNews) {
  MemberState member = Registered();
  EXPECT_EQ(member.Heard(Incarnation(2), absl::FailedPreconditionError("dead"), kBegin), News::kNone);
  EXPECT_TRUE(member.beating());
}

TEST(MemberState, TheSchedulerMayBeSilentForSoLong) {
  MemberState member = Registered();
  const absl::Status down = absl::UnavailableError("down");
  EXPECT_EQ(member.Heard(kLife, down, kBegin + absl::Seconds(9)), News::kNone);
  EXPECT_EQ(member.Heard(kLife, Live(), kBegin + absl::Seconds(10)), News::kLive);
  EXPECT_EQ(member.Heard(kLife, down, kBegin + absl::Seconds(19)), News::kNone);
  EXPECT_EQ(member.Heard(kLife, down, kBegin + absl::Seconds(20)), News::kEnd);
  EXPECT_EQ(member.end()->status, down);
  EXPECT_EQ(member.end()->reason, "the scheduler has been silent for 10s");
  EXPECT_FALSE(member.beating());
}

TEST(MemberState, ARefusalAndTheEndOfTheJobEndTheLife) {
  MemberState refused = Registered(), over = Registered();
  EXPECT_EQ(refused.Heard(kLife, absl::FailedPreconditionError("was given up"), kBegin), News::kEnd);
  EXPECT_EQ(refused.end()->reason, "was given up");
  wire::HeartbeatReply leave;
  leave.set_leave(true);
  leave.set_leave_reason("all is done");
  EXPECT_EQ(over.Heard(kLife, leave, kBegin), News::kEnd);
  EXPECT_EQ(over.end()->status, absl::OkStatus());
  EXPECT_EQ(over.end()->reason, "all is done");
  EXPECT_EQ(over.Heard(kLife, leave, kBegin), News::kNone) << "only once";
}

TEST(MemberState, AMapIsOldOnlyWhereThereIsOne) {
  MemberState member = Registered();
  EXPECT_FALSE(member.KnowsOlderThan(Generation(2)));
  member.HasMap(Generation(2));
  EXPECT_FALSE(member.KnowsOlderThan(Generation(2)));
  EXPECT_TRUE(member.KnowsOlderThan(Generation(3)));
}

}  // namespace
}  // namespace slackline::worker::member_state_test
