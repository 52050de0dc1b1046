// Servers that join and leave while training continues: what moves when, what is decided when, and what a restarted
// scheduler knows of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::controller_moves_test {
namespace {

using testing::HasSubstr;

class ControllerMoves : public testing::Test {
 protected:
  ControllerMoves() {
    cluster_.KeepState();
    cluster_.Start();
  }

  absl::StatusOr<wire::ChangeServersReply> Add(uint32_t count) {
    wire::ChangeServersRequest request;
    request.set_add(count);
    return cluster_.controller().ChangeServers(request);
  }
  absl::StatusOr<wire::ChangeServersReply> Drain(const std::string& name) {
    wire::ChangeServersRequest request;
    request.add_drain(name);
    return cluster_.controller().ChangeServers(request);
  }
  wire::GetShardMapReply Map(FakeCluster& cluster) {
    wire::GetShardMapRequest request;
    request.set_job(FakeCluster::kJob);
    return *cluster.controller().GetShardMap(request);
  }
  // By server.
  std::map<uint32_t, int> Shards(FakeCluster& cluster) {
    std::map<uint32_t, int> shards;
    const wire::GetShardMapReply map = Map(cluster);
    for (const wire::ShardSpec& shard : map.shards()) ++shards[shard.server()];
    return shards;
  }
  FakeServers::Told& Told(uint32_t server) { return cluster_.servers().told().at(ServerId(server)); }
  void Say(const std::string& from, const wire::TakeShardsRequest& take, bool in_step, bool lost = false,
           uint64_t attachment = 1) {
    wire::BackupProgress& progress = cluster_.pairing(from);
    progress.set_attachment(attachment);
    progress.set_move(take.move());
    progress.set_backup_incarnation(take.server_incarnation());
    progress.set_in_step(in_step);
    progress.set_lost(lost);
  }
  // A tick, without time for anything else.
  void Tick() { cluster_.controller().Tick(); }
  void Save() { cluster_.controller().StateKept(cluster_.Save()); }
  void Die(const std::string& name) {
    wire::ReportExitRequest exit;
    exit.set_job(FakeCluster::kJob);
    exit.set_role(wire::MEMBER_ROLE_SERVER);
    exit.set_name(name);
    exit.set_reason("killed by signal 9");
    ASSERT_TRUE(cluster_.controller().ReportExit(exit).ok());
    cluster_.Silence(name);
  }
  // ps-3 is there, and takes shards of ps-2.
  wire::TakeShardsRequest BeginMove() {
    EXPECT_TRUE(Add(1).ok());
    cluster_.AddServer("ps-3");
    Tick();
    EXPECT_TRUE(Told(3).take.has_value());
    return Told(3).take.value_or(wire::TakeShardsRequest());
  }

  FakeCluster cluster_;
};

TEST_F(ControllerMoves, NobodyJoinsUnasked) {
  wire::RegisterServerRequest request;
  request.set_name("ps-3");
  request.set_address("ps-3:1");
  request.set_job_fingerprint(FakeCluster::kFingerprint);
  const auto reply = cluster_.controller().RegisterServer(request);
  EXPECT_TRUE(absl::IsFailedPrecondition(reply.status()));
  EXPECT_THAT(reply.status().message(),
              HasSubstr("ps-3 is one too many: the job has 2 servers; `slackline servers add`"));
}

TEST_F(ControllerMoves, AServerThatJoinsTakesItsShareAndNothingHappensBeforeItHasAll) {
  const wire::TakeShardsRequest take = BeginMove();
  EXPECT_EQ(cluster_.StateOf("ps-3"), "joining");
  EXPECT_EQ(take.from().name(), "ps-2");
  EXPECT_EQ(take.from().server(), 2u);
  EXPECT_EQ(take.from().incarnation(), cluster_.member("ps-2").incarnation);
  EXPECT_GT(take.shards_size(), 0);
  const wire::GetShardMapReply before = Map(cluster_);
  Say("ps-2", take, /*in_step=*/false);
  cluster_.Pass(absl::Seconds(1));
  EXPECT_EQ(Map(cluster_).SerializeAsString(), before.SerializeAsString());

  Say("ps-2", take, /*in_step=*/true);
  ASSERT_TRUE(cluster_.Beat("ps-2").ok());
  Tick();
  EXPECT_FALSE(Told(2).install) << "a scheduler that died now would not know of it";
  EXPECT_EQ(cluster_.Beat("w-1")->generation(), before.generation()) << "workers go on where all is still served";
  // What is on its way of the set does not count for the shards that it is to have.
  wire::SetMembersReply late;
  late.set_epoch(100);
  late.set_generation(before.generation());
  cluster_.controller().MembersInstalled(Told(2).server, late);
  Save();
  EXPECT_GT(Map(cluster_).generation(), before.generation());
  EXPECT_EQ(cluster_.Beat("w-1")->generation(), Map(cluster_).generation());
  ASSERT_TRUE(Told(2).install);
  EXPECT_TRUE(Told(2).install->moves());
  EXPECT_EQ(
      Told(2).install->shards_size() + take.shards_size(),
      std::count_if(before.shards().begin(), before.shards().end(), [](const auto& s) { return s.server() == 2; }));
  EXPECT_FALSE(Told(3).install) << "the other still has them";
  // It gives them up, ...
  const ServerRef first = Told(2).server;
  Told(2).install.reset();
  cluster_.controller().Installed(first, {});
  ASSERT_TRUE(Told(3).install);
  EXPECT_EQ(Told(3).install->shards_size(), take.shards_size());
  EXPECT_EQ(Told(3).install->generation(), Map(cluster_).generation());
  EXPECT_EQ(Told(3).install->restore_lineage(), Map(cluster_).generation());
  ASSERT_TRUE(Told(3).members);
  EXPECT_EQ(Told(3).members->generation(), Told(3).install->generation());
  EXPECT_EQ(Told(3).members->members_size(), 2);
  // ... and then the next one gives its part.
  cluster_.Answer();
  EXPECT_EQ(cluster_.StateOf("ps-3"), "live");
  EXPECT_TRUE(cluster_.controller().GetStatus().servers_change());
  Tick();
  const wire::TakeShardsRequest second = *Told(3).take;
  EXPECT_EQ(second.from().name(), "ps-1");
  Say("ps-1", second, /*in_step=*/true);
  cluster_.Pass(absl::Seconds(1));
  EXPECT_FALSE(cluster_.controller().GetStatus().servers_change());
  for (const auto& [server, shards] : Shards(cluster_)) EXPECT_NEAR(shards, before.shards_size() / 3, 1) << server;
}

TEST_F(ControllerMoves, AWorkerThatJoinsMeanwhileWaitsForBoth) {
  const wire::TakeShardsRequest take = BeginMove();
  Say("ps-2", take, /*in_step=*/true);
  ASSERT_TRUE(cluster_.Beat("ps-2").ok());
  Tick();
  cluster_.AddWorker("w-3");
  cluster_.Answer();
  EXPECT_EQ(cluster_.StateOf("w-3"), "joining");
  cluster_.Pass(absl::Milliseconds(100));
  EXPECT_EQ(cluster_.StateOf("w-3"), "live");
}

TEST_F(ControllerMoves, ADrainedServerGivesAllAndLeaves) {
  EXPECT_EQ(Drain("ps-2")->servers(), 1u);
  Tick();
  EXPECT_EQ(cluster_.StateOf("ps-2"), "draining");
  ASSERT_TRUE(Told(1).take);
  EXPECT_EQ(Told(1).take->shards_size(), Shards(cluster_)[2]);
  Say("ps-2", *Told(1).take, /*in_step=*/true);
  cluster_.Pass(absl::Seconds(1));
  EXPECT_EQ(Shards(cluster_).size(), 1u);
  EXPECT_EQ(cluster_.StateOf("ps-2"), "left");
  EXPECT_EQ(Map(cluster_).servers_size(), 1);
  EXPECT_TRUE(cluster_.Beat("ps-2")->leave()) << "if it missed the call";
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
  // Its supervisor saw it end.
  Die("ps-2");
  EXPECT_FALSE(cluster_.HasEvent("before it registered"));
  // Who joins now is live with the servers that there are.
  cluster_.AddWorker("w-3");
  cluster_.Answer();
  EXPECT_EQ(cluster_.StateOf("w-3"), "live");
  // The same process may be wanted again.
  ASSERT_TRUE(Add(1).ok());
  cluster_.AddServer("ps-2");
  EXPECT_EQ(cluster_.StateOf("ps-2"), "joining");
}

TEST_F(ControllerMoves, WhatCannotBeIsRefusedAndChangesNothing) {
  EXPECT_THAT(Drain("ps-9").status().message(), HasSubstr("no server is called ps-9; there are ps-1, ps-2"));
  ASSERT_TRUE(Drain("ps-1").ok());
  EXPECT_THAT(Drain("ps-2").status().message(), HasSubstr("none would be left to hold the shards"));
  EXPECT_THAT(Add(1000).status().message(), HasSubstr("more servers than shards"));
  EXPECT_TRUE(absl::IsInvalidArgument(Add(0).status()));
  cluster_.controller().StopJob("enough", false);
  EXPECT_TRUE(absl::IsFailedPrecondition(Add(1).status()));
  for (const auto& change : std::vector<std::function<void(job::Job&)>>{
           [](job::Job& job) { job.mutable_durability()->set_mode(job::Durability::REPLICATED); },
           [](job::Job& job) { job.mutable_consistency()->set_mode(job::Consistency::SOFTSYNC); }}) {
    job::Job job = FakeCluster::SmallJob();
    change(job);
    FakeCluster other(job);
    for (const char* name : {"ps-1", "ps-2", "ps-3", "ps-4"}) {
      if (other.controller().state() == wire::JOB_STARTING &&
          (name[3] < '3' || job.durability().mode() == job::Durability::REPLICATED)) {
        other.AddServer(name);
      }
    }
    for (const char* name : {"w-1", "w-2"}) other.AddWorker(name);
    other.Answer();
    ASSERT_EQ(other.controller().state(), wire::JOB_TRAINING) << other.controller().GetStatus().reason();
    wire::ChangeServersRequest request;
    request.set_add(1);
    EXPECT_THAT(other.controller().ChangeServers(request).status().message(), HasSubstr("cannot move"));
  }
}

TEST_F(ControllerMoves, WhoDiesBeforeItIsDecidedChangesNothing) {
  const wire::TakeShardsRequest take = BeginMove();
  const wire::GetShardMapReply before = Map(cluster_);
  Say("ps-2", take, /*in_step=*/true, /*lost=*/true);
  EXPECT_EQ(cluster_.Beat("ps-2")->backup_released(), 1u) << "it need not wait for one that catches up anew";
  Die("ps-3");
  EXPECT_TRUE(cluster_.HasEvent("they stay where they are for now: ps-3 is dead"));
  cluster_.Pass(absl::Seconds(1));
  EXPECT_EQ(Map(cluster_).SerializeAsString(), before.SerializeAsString());
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
  // What it says of that stream later is not believed.
  Say("ps-2", take, /*in_step=*/true);
  EXPECT_EQ(cluster_.Beat("ps-2")->backup_released(), 1u);
  cluster_.AddServer("ps-3");
  cluster_.Pass(absl::Seconds(5));
  const uint64_t again = Told(3).take->move();
  EXPECT_GT(again, take.move()) << "it is tried again";
  EXPECT_EQ(Map(cluster_).generation(), before.generation());
}

TEST_F(ControllerMoves, OnceItIsDecidedItIsNotReleased) {
  const wire::TakeShardsRequest take = BeginMove();
  Say("ps-2", take, /*in_step=*/true);
  ASSERT_TRUE(cluster_.Beat("ps-2").ok());
  Tick();
  Say("ps-2", take, /*in_step=*/true, /*lost=*/true);
  EXPECT_EQ(cluster_.Beat("ps-2")->backup_released(), 0u);
  Save();
  // The one that has them dies before it has given them up: nobody waits for it.
  cluster_.MakeDurable("ps-2");
  cluster_.Beat("ps-2").IgnoreError();
  EXPECT_FALSE(Told(3).install);
  Die("ps-2");
  ASSERT_TRUE(Told(3).install);
  EXPECT_EQ(Told(3).install->shards_size(), take.shards_size());
}

TEST_F(ControllerMoves, ASchedulerThatIsStartedAgainGoesOnWithWhatWasDecided) {
  const wire::TakeShardsRequest take = BeginMove();
  Say("ps-2", take, /*in_step=*/true);
  ASSERT_TRUE(cluster_.Beat("ps-2").ok());
  Tick();
  const state::Scheduler saved = cluster_.Save();
  Save();
  const wire::GetShardMapReply map = Map(cluster_);

  FakeCluster again;
  ASSERT_TRUE(again.TakeOver(cluster_, saved).ok());
  EXPECT_EQ(Shards(again), Shards(cluster_));
  auto& told = again.servers().told();
  ASSERT_TRUE(told.at(ServerId(2)).install);
  EXPECT_EQ(told.at(ServerId(2)).install->generation(), map.generation());
  EXPECT_FALSE(told.at(ServerId(3)).install) << "the other may still have them";
  // Before it has given them up, it is not told that it may answer without the other.
  again.pairing("ps-2") = cluster_.pairing("ps-2");
  again.pairing("ps-2").set_lost(true);
  EXPECT_EQ(again.Beat("ps-2")->backup_released(), 0u);
  again.Answer();
  EXPECT_TRUE(again.HasEvent("moved"));
  EXPECT_EQ(again.StateOf("ps-3"), "live");
}

TEST_F(ControllerMoves, OfAMoveThatWasNotDecidedItKnowsNothing) {
  const wire::TakeShardsRequest take = BeginMove();
  const state::Scheduler saved = cluster_.Save();
  FakeCluster again;
  ASSERT_TRUE(again.TakeOver(cluster_, saved).ok());
  again.pairing("ps-2") = cluster_.pairing("ps-2");
  wire::BackupProgress& progress = again.pairing("ps-2");
  progress.set_attachment(4);
  progress.set_move(take.move());
  progress.set_backup_incarnation(take.server_incarnation());
  progress.set_in_step(true);
  EXPECT_EQ(again.Beat("ps-2")->backup_released(), 0u) << "not before it is known what it has";
  again.Answer();
  EXPECT_EQ(again.Beat("ps-2")->backup_released(), 4u);
  EXPECT_EQ(again.StateOf("ps-3"), "joining");
  again.controller().Tick();
  EXPECT_GT(again.servers().told().at(ServerId(3)).take->move(), take.move());
}

TEST_F(ControllerMoves, OneThatDoesNotCatchUpIsSaidAndTriedAgain) {
  BeginMove();
  cluster_.Pass(absl::Seconds(cluster_.job().durability().server_return_s()) + absl::Seconds(1));
  EXPECT_TRUE(cluster_.HasEvent("ps-3 has not caught up within"));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
}

}  // namespace
}  // namespace slackline::scheduler::controller_moves_test
