// Servers that crash in the middle of training, and come back or do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::controller_return_test {
namespace {

using testing::HasSubstr;

job::Job Job() {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_durability()->set_server_return_s(5);
  return job;
}

void Die(FakeCluster& cluster, const std::string& name) {
  wire::ReportExitRequest exit;
  exit.set_job(FakeCluster::kJob);
  exit.set_role(wire::MEMBER_ROLE_SERVER);
  exit.set_name(name);
  exit.set_reason("killed by signal 9");
  ASSERT_TRUE(cluster.controller().ReportExit(exit).ok());
  cluster.Silence(name);
}

wire::GetShardMapReply Map(FakeCluster& cluster) {
  wire::GetShardMapRequest request;
  request.set_job(FakeCluster::kJob);
  return *cluster.controller().GetShardMap(request);
}

// Lets the server die and go on from snapshots that have the worker at `clock`, in one shard.
void GoOnFrom(FakeCluster& cluster, const std::string& server, const std::string& worker, uint64_t clock) {
  Die(cluster, server);
  cluster.AddServer(server);
  wire::InstallShardsReply& reply = cluster.restored(server);
  reply.Clear();
  wire::RestoredWorker& restored = *reply.add_restored();
  restored.set_worker(cluster.member(worker).id);
  restored.set_incarnation(cluster.member(worker).incarnation);
  restored.set_shards(1);
  restored.set_clock_sum(clock);
  cluster.Answer();
}

class ControllerReturn : public testing::Test {
 protected:
  ControllerReturn() : cluster_(Job()) {
    cluster_.Start();
    for (const char* server : {"ps-1", "ps-2"}) cluster_.MakeDurable(server);
    cluster_.Pass(absl::Milliseconds(100));
  }

  FakeCluster cluster_;
};

TEST_F(ControllerReturn, ServerThatComesBackGetsItsShardsUnderANewGeneration) {
  const wire::GetShardMapReply before = Map(cluster_);
  EXPECT_EQ(before.generation(), 1u);
  EXPECT_EQ(before.servers(1).generation(), 1u);
  Die(cluster_, "ps-2");
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
  EXPECT_TRUE(cluster_.HasEvent("server ps-2 (ps-2:1) is dead: killed by signal 9"));
  EXPECT_EQ(cluster_.Beat("w-1")->generation(), 1u);

  cluster_.AddServer("ps-2");
  const FakeServers::Told& told = cluster_.servers().told()[ServerId(2)];
  ASSERT_TRUE(told.install && told.members);
  EXPECT_EQ(told.install->generation(), 2u);
  EXPECT_EQ(told.install->restore_lineage(), 2u);
  EXPECT_EQ(told.install->snapshot_folder(), "/runs/one/snapshots");
  EXPECT_EQ(told.members->generation(), 2u);
  EXPECT_EQ(cluster_.Beat("w-1")->generation(), 2u);
  const wire::GetShardMapReply after = Map(cluster_);
  EXPECT_EQ(after.servers(0).generation(), 1u) << "it has not moved";
  EXPECT_EQ(after.servers(1).generation(), 2u);
  EXPECT_EQ(after.shards_size(), before.shards_size());

  cluster_.Answer();
  EXPECT_TRUE(cluster_.HasEvent("server ps-2 goes on from its snapshots"));
  cluster_.Pass(absl::Seconds(10));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);

  // Again, before it has said anything in this life.
  Die(cluster_, "ps-2");
  cluster_.AddServer("ps-2");
  EXPECT_EQ(cluster_.servers().told()[ServerId(2)].install->restore_lineage(), 3u) << "no two lives have one lineage";
}

TEST_F(ControllerReturn, LifeThatWasGivenUpDuringItsRestoreIsNotBelieved) {
  Die(cluster_, "ps-2");
  cluster_.AddServer("ps-2");
  const ServerRef second = cluster_.servers().told()[ServerId(2)].server;
  Die(cluster_, "ps-2");
  cluster_.controller().Installed(second, {});  // too late
  EXPECT_FALSE(cluster_.HasEvent("goes on from its snapshots"));
  cluster_.controller().Refused(second, absl::FailedPreconditionError("not now"));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
  cluster_.AddServer("ps-2");
  EXPECT_EQ(cluster_.servers().told()[ServerId(2)].install->restore_lineage(), 3u);
  EXPECT_GT(cluster_.servers().told()[ServerId(2)].install->server_incarnation(), second.incarnation.value());
}

TEST_F(ControllerReturn, DeathsDuringOneRestoreAreOneAbsence) {
  Die(cluster_, "ps-2");
  for (int i = 0; i < 3; ++i) {
    cluster_.Pass(absl::Seconds(2));
    if (cluster_.controller().state() != wire::JOB_TRAINING) break;
    cluster_.AddServer("ps-2");
    Die(cluster_, "ps-2");
  }
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_FAILED) << "5 s are over";
}

TEST_F(ControllerReturn, ServerMayBeStartedAgainBeforeItsDeathIsNoticed) {
  cluster_.Advance(absl::Milliseconds(301));  // of its silence
  cluster_.AddServer("ps-1");
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
  EXPECT_EQ(cluster_.servers().told()[ServerId(1)].install->restore_lineage(), 2u);
}

TEST_F(ControllerReturn, ServerThatStaysAwayFailsTheJobByName) {
  Die(cluster_, "ps-2");
  cluster_.Pass(absl::Seconds(4.9));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
  cluster_.Pass(absl::Seconds(0.3));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_FAILED);
  EXPECT_THAT(cluster_.controller().GetStatus().reason(), HasSubstr("server ps-2 died 5."));
  EXPECT_THAT(cluster_.controller().GetStatus().reason(), HasSubstr("/runs/one/snapshots"));
}

TEST_F(ControllerReturn, ServerWhoseShardsDoNotComeBackFailsTheJob) {
  Die(cluster_, "ps-2");
  cluster_.AddServer("ps-2");
  // It beats, but does not take its shards.
  for (int i = 0; i < 52; ++i) {
    cluster_.Advance(absl::Milliseconds(100));
    for (const char* name : {"ps-1", "ps-2", "w-1", "w-2"}) cluster_.Beat(name).IgnoreError();
    cluster_.controller().Tick();
  }
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_FAILED);
  EXPECT_THAT(cluster_.controller().GetStatus().reason(), HasSubstr("its shards are not back"));
}

TEST_F(ControllerReturn, WorkerThatJoinsMeanwhileIsLiveOnceTheServerIsBack) {
  Die(cluster_, "ps-2");
  cluster_.AddWorker("w-3");
  cluster_.Pass(absl::Seconds(1));
  EXPECT_EQ(cluster_.StateOf("w-3"), "joining");
  cluster_.AddServer("ps-2");
  cluster_.Pass(absl::Milliseconds(200));
  EXPECT_EQ(cluster_.StateOf("w-3"), "live");
}

TEST_F(ControllerReturn, LostPushesAreTold) {
  cluster_.progress("w-1").set_pushes_lost(7);
  cluster_.Pass(absl::Milliseconds(100));
  EXPECT_TRUE(cluster_.HasEvent("7 answered sub-pushes of worker w-1 were lost"));
}

TEST_F(ControllerReturn, LossesOfAWorkerThatHasLeftAreTold) {
  cluster_.progress("w-1").set_steps(50);
  cluster_.progress("w-1").set_clock(50);
  cluster_.Pass(absl::Milliseconds(100));
  ASSERT_TRUE(cluster_.Leave("w-1").ok());
  GoOnFrom(cluster_, "ps-2", "w-1", 44);
  EXPECT_TRUE(cluster_.HasEvent("6 answered sub-pushes of worker w-1 were lost, after its last step"));
  GoOnFrom(cluster_, "ps-2", "w-1", 44);
  EXPECT_FALSE(cluster_.HasEvent("12 answered sub-pushes")) << "the same ones";
  GoOnFrom(cluster_, "ps-1", "w-1", 47);
  EXPECT_TRUE(cluster_.HasEvent("3 answered sub-pushes of worker w-1 were lost, after its last step"));
}

TEST_F(ControllerReturn, LossesOfAWorkerThatLeavesWithoutAStepAreToldThen) {
  for (const char* worker : {"w-1", "w-2"}) {
    cluster_.progress(worker).set_steps(50);
    cluster_.progress(worker).set_clock(50);
  }
  cluster_.Pass(absl::Milliseconds(100));
  GoOnFrom(cluster_, "ps-2", "w-1", 44);
  GoOnFrom(cluster_, "ps-2", "w-2", 45);
  EXPECT_FALSE(cluster_.HasEvent("were lost")) << "they say so with their next step";
  // Its stream has told this one.
  cluster_.progress("w-2").set_steps(51);
  cluster_.progress("w-2").set_pushes_lost(5);
  cluster_.Pass(absl::Milliseconds(100));
  EXPECT_TRUE(cluster_.HasEvent("5 answered sub-pushes of worker w-2 were lost: "));
  // Dead again before its next snapshot: what was lost before is told, and the step after it is not.
  cluster_.progress("w-2").set_clock(51);
  cluster_.Pass(absl::Milliseconds(100));
  GoOnFrom(cluster_, "ps-2", "w-2", 45);
  for (const char* worker : {"w-1", "w-2"}) ASSERT_TRUE(cluster_.Leave(worker).ok());
  EXPECT_TRUE(cluster_.HasEvent("6 answered sub-pushes of worker w-1 were lost, after its last step"));
  EXPECT_TRUE(cluster_.HasEvent("1 answered sub-pushes of worker w-2 were lost, after its last step"));
  EXPECT_FALSE(cluster_.HasEvent("6 answered sub-pushes of worker w-2")) << "twice";
}

TEST_F(ControllerReturn, WorkerThatGoesOnAndReportsNoLossHadNone) {
  cluster_.progress("w-1").set_steps(50);
  cluster_.progress("w-1").set_clock(50);
  cluster_.Pass(absl::Milliseconds(100));
  GoOnFrom(cluster_, "ps-2", "w-1", 44);  // six, which the servers had discarded
  cluster_.Pass(absl::Seconds(1));
  cluster_.progress("w-1").set_steps(51);
  cluster_.progress("w-1").set_clock(51);
  cluster_.Pass(absl::Milliseconds(200));
  ASSERT_TRUE(cluster_.Leave("w-1").ok());
  EXPECT_FALSE(cluster_.HasEvent("were lost"));
}

TEST_F(ControllerReturn, SnapshotsAreRemovedWhenTheJobIsDoneOnly) {
  cluster_.controller().StopJob("enough", /*failed=*/false);
  cluster_.Silence("w-1");
  cluster_.Silence("w-2");
  for (int i = 0; i < 40 && !cluster_.servers().told()[ServerId(1)].stop; ++i) {
    cluster_.Advance(absl::Milliseconds(100));
    for (const char* server : {"ps-1", "ps-2"}) cluster_.Beat(server).IgnoreError();
    cluster_.controller().Tick();
  }
  ASSERT_TRUE(cluster_.servers().told()[ServerId(1)].stop);
  EXPECT_FALSE(cluster_.servers().told()[ServerId(1)].stop->remove_snapshots());
}

TEST(ControllerReturnEarly, ServersMayComeBackOnceTrainingHasBegun) {
  for (const bool begun : {false, true}) {
    FakeCluster cluster(Job());
    for (const char* server : {"ps-1", "ps-2"}) {
      cluster.AddServer(server);
      cluster.MakeDurable(server);
    }
    cluster.AddWorker("w-1");
    cluster.Answer();
    cluster.Pass(absl::Milliseconds(100));
    EXPECT_FALSE(cluster.HasEvent("from now on a server that dies can come back"));
    if (begun) {
      cluster.AddWorker("w-2");
      cluster.Answer();
      ASSERT_EQ(cluster.controller().state(), wire::JOB_TRAINING);
      EXPECT_TRUE(cluster.HasEvent("from now on a server that dies can come back"));
    }
    Die(cluster, "ps-2");
    EXPECT_EQ(cluster.controller().state(), begun ? wire::JOB_TRAINING : wire::JOB_FAILED);
    if (!begun) {
      EXPECT_THAT(cluster.controller().GetStatus().reason(), HasSubstr("training had not begun yet"));
    }
  }
}

TEST(ControllerReturnEarly, ServerWithoutSnapshotsFailsTheJob) {
  FakeCluster cluster(Job());
  cluster.Start();
  cluster.MakeDurable("ps-1");
  cluster.Pass(absl::Milliseconds(100));
  Die(cluster, "ps-2");
  EXPECT_EQ(cluster.controller().state(), wire::JOB_FAILED);
  EXPECT_THAT(cluster.controller().GetStatus().reason(), HasSubstr("its shards were not on disk yet"));
}

TEST(ControllerReturnEarly, WithoutDurabilityNobodyIsWaitedFor) {
  job::Job job = Job();
  job.mutable_durability()->set_mode(job::Durability::NONE);
  FakeCluster cluster(job);
  cluster.Start();
  EXPECT_EQ(cluster.servers().told()[ServerId(1)].server.incarnation, Incarnation(1));
  Die(cluster, "ps-2");
  EXPECT_EQ(cluster.controller().state(), wire::JOB_FAILED);
}

}  // namespace
}  // namespace slackline::scheduler::controller_return_test
