#include "scheduler/members/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace slackline::scheduler::membership_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class MembershipTest : public testing::Test {
 protected:
  MembershipTest() : membership_(Config()) {}

  static Membership::Config Config() {
    Membership::Config config;
    config.servers = 2;
    config.workers_max = 2;
    return config;
  }

  Membership::Registered Server(const std::string& name) {
    return *membership_.RegisterServer(name, name + ":1", now_, actions_);
  }
  Membership::Registered Worker(const std::string& name, std::optional<WorkerId> previous = std::nullopt) {
    return *membership_.RegisterWorker(name, previous, now_, actions_);
  }
  // Both servers acknowledge the set as it is now.
  void AcknowledgeAll(uint64_t clock = 0) {
    for (const auto& [id, server] : membership_.servers()) {
      membership_.MembersInstalled(id, server.incarnation, membership_.epoch(), Clock64(clock), actions_);
    }
  }
  // What happened since the last call, without the sets sent.
  std::vector<std::string> News() {
    std::vector<std::string> news;
    for (const MembershipAction& action : actions_) {
      if (const auto* live = std::get_if<WorkerLiveAction>(&action)) {
        news.push_back(absl::StrCat("live ", live->worker.value(), " from ", live->first_clock.value()));
      } else if (const auto* fenced = std::get_if<WorkerFencedAction>(&action)) {
        news.push_back(absl::StrCat("fenced ", fenced->worker.value(), ".", fenced->incarnation.value()));
      } else if (const auto* dead = std::get_if<WorkerDeadAction>(&action)) {
        news.push_back(absl::StrCat("dead ", dead->worker.value(), ": ", dead->reason));
      } else if (const auto* lost = std::get_if<ServerDeadAction>(&action)) {
        news.push_back(absl::StrCat("server dead ", lost->server.value(), ": ", lost->reason));
      }
    }
    actions_.clear();
    return news;
  }
  // Sets that were sent since the last call, such as "1: since 3, in 4.12, out 2": numbers of servers and workers.
  std::vector<std::string> Sets() {
    std::vector<std::string> sets;
    for (const MembershipAction& action : actions_) {
      const auto* send = std::get_if<SendMembersAction>(&action);
      if (send == nullptr) continue;
      std::string text = absl::StrCat(send->server.value(), send->since ? ": since " : ": all",
                                      send->since ? absl::StrCat(send->since->value()) : "");
      for (const MemberRef& in : send->members) {
        absl::StrAppend(&text, ", in ", in.worker.value(), ".", in.incarnation.value());
      }
      for (const WorkerId out : send->gone) absl::StrAppend(&text, ", out ", out.value());
      sets.push_back(text);
    }
    actions_.clear();
    return sets;
  }
  absl::Status Beat(const Membership::Registered& worker) {
    return membership_.HeartbeatWorker(WorkerId(worker.id), worker.incarnation, now_);
  }
  void BeatServers() {
    for (const auto& [id, server] : membership_.servers()) {
      EXPECT_TRUE(membership_.HeartbeatServer(id, server.incarnation, now_).ok());
    }
  }

  Membership membership_;
  MembershipActions actions_;
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(MembershipTest, AWorkerIsLiveOnceEveryServerHasItAndBeginsAtTheLargestMinimum) {
  const auto one = Server("ps-1");
  Worker("w");
  membership_.MembersInstalled(ServerId(one.id), one.incarnation, membership_.epoch(), Clock64(3), actions_);
  EXPECT_THAT(News(), IsEmpty());
  const auto two = Server("ps-2");
  membership_.MembersInstalled(ServerId(two.id), two.incarnation, membership_.epoch(), Clock64(5), actions_);
  EXPECT_THAT(News(), ElementsAre("live 1 from 5"));
}

TEST_F(MembershipTest, AServerGetsTheWholeSetOnceAndThenTheChanges) {
  const auto one = Server("ps-1");
  const auto acknowledge = [&](Epoch epoch) {
    membership_.MembersInstalled(ServerId(one.id), one.incarnation, epoch, Clock64(), actions_);
  };
  const auto first = Worker("first");
  EXPECT_THAT(Sets(), ElementsAre(absl::StrCat("1: all, in 1.", first.incarnation.value())));
  // Both changes wait for the server's answer, and go out together.
  const auto second = Worker("second");
  membership_.Leave(WorkerId(1), first.incarnation, "done", actions_);
  EXPECT_THAT(Sets(), IsEmpty());
  acknowledge(Epoch(1));
  EXPECT_THAT(Sets(), ElementsAre(absl::StrCat("1: since 1, in 2.", second.incarnation.value(), ", out 1")));
  // A worker that comes and goes in between is out for a server that never knew it.
  membership_.Expel(WorkerId(2), second.incarnation, "killed", actions_);
  const auto again = Worker("second", WorkerId(2));
  membership_.Leave(WorkerId(2), again.incarnation, "done", actions_);
  Sets();
  acknowledge(Epoch(3));
  EXPECT_THAT(Sets(), ElementsAre("1: since 3, out 2"));
  // The bound of ssp travels with a set, and changes without it.
  acknowledge(membership_.epoch());
  membership_.SendAgain(actions_);
  EXPECT_THAT(Sets(), ElementsAre("1: since 6"));
  // Another life of a server knows nobody.
  const auto third = Worker("third");
  Sets();
  Server("ps-1");
  EXPECT_THAT(Sets(), ElementsAre(absl::StrCat("1: all, in 3.", third.incarnation.value())));
}

TEST_F(MembershipTest, AServerThatIsTooManyChangesBehindGetsTheWholeSet) {
  const auto one = Server("ps-1");
  const auto first = Worker("first");
  for (int i = 0; i < 40'000; ++i) {
    const auto other = Worker("other");
    membership_.Leave(WorkerId(other.id), other.incarnation, "done", actions_);
  }
  Sets();
  membership_.MembersInstalled(ServerId(one.id), one.incarnation, Epoch(1), Clock64(), actions_);
  EXPECT_THAT(Sets(), ElementsAre(absl::StrCat("1: all, in 1.", first.incarnation.value())));
}

TEST_F(MembershipTest, ALeaverIsFencedOnceEveryServerHasASetWithoutIt) {
  const auto one = Server("ps-1");
  Server("ps-2");
  const auto worker = Worker("w");
  AcknowledgeAll();
  News();
  membership_.Leave(WorkerId(worker.id), worker.incarnation, "done", actions_);
  EXPECT_TRUE(membership_.Members().empty());
  membership_.MembersInstalled(ServerId(one.id), one.incarnation, membership_.epoch(), Clock64(0), actions_);
  EXPECT_THAT(News(), IsEmpty());
  AcknowledgeAll();
  EXPECT_THAT(News(), ElementsAre(absl::StrCat("fenced 1.", worker.incarnation.value())));
}

TEST_F(MembershipTest, ASilentWorkerIsDeadAfterSixteenT) {
  Server("ps-1");
  Server("ps-2");
  const auto worker = Worker("w");
  AcknowledgeAll();
  News();
  now_ += absl::Milliseconds(4800);
  BeatServers();
  membership_.Tick(now_, actions_);
  EXPECT_THAT(News(), IsEmpty());
  now_ += absl::Milliseconds(1);
  BeatServers();
  membership_.Tick(now_, actions_);
  EXPECT_THAT(News(), ElementsAre(HasSubstr("dead 1: silent for 4.801s, allowed is 4.8s")));
  EXPECT_THAT(Beat(worker).message(), HasSubstr("was given up as dead: silent for"));
}

TEST_F(MembershipTest, AnExcusedWorkerIsDeadWhenItIsStillSilentAfterwards) {
  Server("ps-1");
  Server("ps-2");
  const auto one = Worker("w-1"), two = Worker("w-2");
  AcknowledgeAll();
  News();
  membership_.Excuse(WorkerId(one.id), one.incarnation, now_ + absl::Seconds(20));
  membership_.Excuse(WorkerId(two.id), two.incarnation, now_ + absl::Seconds(20));
  membership_.Excuse(WorkerId(two.id), two.incarnation, absl::InfinitePast());
  const auto pass = [this](absl::Duration time) {
    now_ += time;
    BeatServers();
    membership_.Tick(now_, actions_);
  };
  pass(absl::Milliseconds(4801));
  EXPECT_THAT(News(), ElementsAre("dead 2: silent for 4.801s, allowed is 4.8s"));
  pass(absl::Milliseconds(15198));
  EXPECT_THAT(News(), ElementsAre());
  EXPECT_TRUE(Beat(one).ok()) << "it may come back at any time";
  membership_.Excuse(WorkerId(one.id), one.incarnation, now_ + absl::Seconds(20));
  pass(absl::Seconds(21));
  EXPECT_THAT(News(), ElementsAre("dead 1: silent for 21s, allowed is 4.8s, and its lease is over"));
}

TEST_F(MembershipTest, ASilentServerIsDeadAfterThreeT) {
  Server("ps-1");
  now_ += absl::Milliseconds(901);
  membership_.Tick(now_, actions_);
  EXPECT_THAT(News(), ElementsAre(HasSubstr("server dead 1: silent for 901ms")));
  EXPECT_FALSE(membership_.AllServersPresent());
}

TEST(Membership, AServerWithoutABackupMayBeSilentForAsLongAsStated) {
  Membership::Config config;
  config.server_silence_max = absl::Seconds(5);
  Membership membership(config);
  MembershipActions actions;
  ASSERT_TRUE(membership.RegisterServer("ps-1", "", absl::UnixEpoch(), actions).ok());
  actions.clear();
  membership.Tick(absl::UnixEpoch() + absl::Seconds(5), actions);
  EXPECT_TRUE(actions.empty());
  membership.Tick(absl::UnixEpoch() + absl::Milliseconds(5001), actions);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<ServerDeadAction>(actions[0]).reason, "silent for 5.001s, allowed is 5s");
}

TEST_F(MembershipTest, ADeadServerHoldsNoFence) {
  const auto one = Server("ps-1");
  Server("ps-2");
  const auto worker = Worker("w");
  AcknowledgeAll();
  News();
  membership_.ServerLost(ServerId(2), membership_.servers().at(ServerId(2)).incarnation, "killed", actions_);
  membership_.Expel(WorkerId(worker.id), worker.incarnation, "killed", actions_);
  membership_.MembersInstalled(ServerId(one.id), one.incarnation, membership_.epoch(), Clock64(0), actions_);
  EXPECT_THAT(News(), ElementsAre("server dead 2: killed", "dead 1: killed", HasSubstr("fenced 1.")));
}

TEST_F(MembershipTest, AServerThatComesBackMustAcknowledgeAnew) {
  Server("ps-1");
  Server("ps-2");
  AcknowledgeAll();
  const auto old = membership_.servers().at(ServerId(2)).incarnation;
  const auto again = Server("ps-2");
  EXPECT_EQ(again.id, 2u);
  EXPECT_GT(again.incarnation, old);
  Worker("w");
  membership_.MembersInstalled(ServerId(1), membership_.servers().at(ServerId(1)).incarnation, membership_.epoch(),
                               Clock64(0), actions_);
  membership_.MembersInstalled(ServerId(2), old, membership_.epoch(), Clock64(0), actions_);
  EXPECT_THAT(News(), IsEmpty());
  AcknowledgeAll();
  EXPECT_THAT(News(), ElementsAre("live 1 from 0"));
}

TEST_F(MembershipTest, AWorkerComesBackFromStandbyAsANewIncarnation) {
  Server("ps-1");
  Server("ps-2");
  const auto worker = Worker("w");
  AcknowledgeAll();
  membership_.Standby(WorkerId(worker.id), worker.incarnation, actions_);
  EXPECT_TRUE(Beat(worker).ok());
  AcknowledgeAll();
  News();
  const auto again = Worker("w", WorkerId(worker.id));
  EXPECT_EQ(again.id, worker.id);
  EXPECT_GT(again.incarnation, worker.incarnation);
  AcknowledgeAll(4);
  EXPECT_THAT(News(), ElementsAre("live 1 from 4"));
  EXPECT_THAT(Beat(worker).message(), HasSubstr("says incarnation"));
}

TEST_F(MembershipTest, RegisteringAgainWhileInTheSetEndsTheEarlierLifeAndFencesItLater) {
  Server("ps-1");
  Server("ps-2");
  const auto worker = Worker("w");
  AcknowledgeAll();
  News();
  Worker("w", WorkerId(worker.id));
  EXPECT_THAT(News(), ElementsAre("dead 1: registered again"));
  AcknowledgeAll();
  EXPECT_THAT(News(),
              testing::UnorderedElementsAre("live 1 from 0", absl::StrCat("fenced 1.", worker.incarnation.value())));
}

TEST_F(MembershipTest, OfMoreThanSomeDepartedTheFirstAreForgottenAndStillCounted) {
  Membership::Config config = Config();
  config.departed_max = 2;
  Membership membership(config);
  ASSERT_TRUE(membership.RegisterServer("ps-1", "ps-1:1", now_, actions_).ok());
  ASSERT_TRUE(membership.RegisterServer("ps-2", "ps-2:1", now_, actions_).ok());
  const auto acknowledge = [&] {
    for (const auto& [id, server] : membership.servers()) {
      membership.MembersInstalled(id, server.incarnation, membership.epoch(), Clock64(), actions_);
    }
  };
  const auto first = membership.RegisterWorker("first", std::nullopt, now_, actions_);
  for (const char* name : {"a", "b", "c"}) {
    const auto worker = membership.RegisterWorker(name, std::nullopt, now_, actions_);
    ASSERT_TRUE(worker.ok()) << worker.status();
    membership.Leave(WorkerId(worker->id), worker->incarnation, "enough", actions_);
  }
  EXPECT_THAT(membership.ForgetDeparted(), IsEmpty()) << "the servers have not acknowledged that they left";
  acknowledge();
  acknowledge();
  EXPECT_THAT(membership.ForgetDeparted(), ElementsAre(WorkerId(2)));
  EXPECT_THAT(membership.ForgetDeparted(), IsEmpty());
  // Worker 3 is there again: of two that have departed nobody is forgotten.
  ASSERT_TRUE(membership.RegisterWorker("b", WorkerId(3), now_, actions_).ok());
  membership.Expel(WorkerId(1), first->incarnation, "stalled", actions_);
  acknowledge();
  acknowledge();
  EXPECT_THAT(membership.ForgetDeparted(), IsEmpty());
  EXPECT_EQ(membership.CountIn(WorkerState::kLeft), 2u);
  EXPECT_EQ(membership.CountIn(WorkerState::kDead), 1u);

  Membership after(config);
  after.Restore(membership.Save(), {}, now_, actions_);
  EXPECT_EQ(after.CountIn(WorkerState::kLeft), 2u);
  EXPECT_EQ(after.CountIn(WorkerState::kDead), 1u);
  EXPECT_EQ(after.last_worker(), WorkerId(4));
  EXPECT_EQ(after.RegisterWorker("d", std::nullopt, now_, actions_)->id, 5u) << "no number is given twice";
}

TEST_F(MembershipTest, TooManyAreRefusedAndChangeNothing) {
  Server("ps-1");
  Server("ps-2");
  EXPECT_EQ(membership_.RegisterServer("ps-3", "", now_, actions_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  Worker("a");
  Worker("b");
  const Epoch epoch = membership_.epoch();
  EXPECT_EQ(membership_.RegisterWorker("c", std::nullopt, now_, actions_).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(membership_.RegisterWorker("d", WorkerId(9), now_, actions_).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(membership_.epoch(), epoch);
}

}  // namespace
}  // namespace slackline::scheduler::membership_test
