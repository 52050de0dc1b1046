// Servers with backups: which may take over, which have done so, and what a restarted scheduler knows of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::controller_backups_test {
namespace {

using testing::HasSubstr;

job::Job ReplicatedJob() {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_durability()->set_mode(job::Durability::REPLICATED);
  return job;
}

class ControllerBackups : public testing::Test {
 protected:
  ControllerBackups() : cluster_(ReplicatedJob()) {
    cluster_.KeepState();
    for (const char* name : {"ps-1", "ps-2", "ps-3", "ps-4"}) cluster_.AddServer(name);
    for (const char* name : {"w-1", "w-2"}) cluster_.AddWorker(name);
    cluster_.Answer();
    EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING) << cluster_.controller().GetStatus().reason();
  }

  static void Say(wire::BackupProgress& pairing, uint64_t attachment, uint64_t backup, bool in_step, bool lost) {
    pairing.set_attachment(attachment);
    pairing.set_backup_incarnation(backup);
    pairing.set_in_step(in_step);
    pairing.set_lost(lost);
  }
  void BringInStep(const std::string& server, const std::string& backup, uint64_t attachment = 1) {
    Say(cluster_.pairing(server), attachment, cluster_.member(backup).incarnation, true, false);
    ASSERT_TRUE(cluster_.Beat(server).ok());
  }
  // What it need not wait for, as its next heartbeat says.
  uint64_t Released(const std::string& server) { return cluster_.Beat(server)->backup_released(); }
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
  static wire::GetShardMapReply Map(FakeCluster& cluster) {
    wire::GetShardMapRequest request;
    request.set_job(FakeCluster::kJob);
    return *cluster.controller().GetShardMap(request);
  }

  FakeCluster cluster_;
};

TEST(ControllerWithoutBackups, TheJobWaitsForThem) {
  FakeCluster cluster(ReplicatedJob());
  for (const char* name : {"ps-1", "ps-2"}) cluster.AddServer(name);
  for (const char* name : {"w-1", "w-2"}) cluster.AddWorker(name);
  cluster.Answer();
  EXPECT_EQ(cluster.controller().state(), wire::JOB_STARTING);
  EXPECT_THAT(cluster.controller().GetStatus().reason(), HasSubstr("has 0 of 2 backups"));
}

TEST_F(ControllerBackups, EachServerHasOneAndNobodyElseIsWanted) {
  EXPECT_TRUE(cluster_.HasEvent("server ps-3 is there at ps-3:1, as the backup of ps-1"));
  EXPECT_TRUE(cluster_.HasEvent("server ps-4 is there at ps-4:1, as the backup of ps-2"));
  EXPECT_EQ(cluster_.StateOf("ps-3"), "catching up");
  wire::RegisterServerRequest request;
  request.set_name("ps-5");
  request.set_address("ps-5:1");
  request.set_job_fingerprint(FakeCluster::kFingerprint);
  const auto reply = cluster_.controller().RegisterServer(request);
  EXPECT_TRUE(absl::IsFailedPrecondition(reply.status()));
  EXPECT_THAT(reply.status().message(),
              HasSubstr("ps-5 is one too many: the job has 2 servers, and each of them has a backup"));
}

TEST_F(ControllerBackups, OneThatIsInStepTakesOver) {
  BringInStep("ps-2", "ps-4");
  EXPECT_EQ(cluster_.StateOf("ps-4"), "in step");
  const uint64_t backup = cluster_.member("ps-4").incarnation;
  Die("ps-2");
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
  const FakeServers::Told& told = cluster_.servers().told().at(ServerId(2));
  EXPECT_FALSE(told.install && told.install->promote())
      << "a scheduler that died now would give the place to the old one again";
  Save();
  EXPECT_EQ(told.server.incarnation, Incarnation(backup));
  ASSERT_TRUE(told.install && told.members);
  EXPECT_TRUE(told.install->promote());
  EXPECT_TRUE(told.install->replicated());
  EXPECT_EQ(told.install->generation(), 2u);
  EXPECT_EQ(told.install->restore_lineage(), 2u);
  EXPECT_EQ(told.members->generation(), 2u);
  const wire::GetShardMapReply map = Map(cluster_);
  EXPECT_EQ(map.generation(), 2u);
  EXPECT_EQ(map.servers(1).name(), "ps-4");
  EXPECT_EQ(map.servers(1).address(), "ps-4:1");
  EXPECT_EQ(cluster_.StateOf("ps-2"), "dead") << "whoever supervises it may start it again";
  cluster_.Answer();
  EXPECT_TRUE(cluster_.HasEvent("server ps-4 has taken over"));
  EXPECT_TRUE(cluster_.Beat("ps-4").ok());

  // The old one was only stopped: it is nobody any more.
  EXPECT_TRUE(absl::IsFailedPrecondition(cluster_.Beat("ps-2").status()));
  // Its process, started again, follows who has its place.
  cluster_.AddServer("ps-2");
  const wire::InstallShardsRequest install = *cluster_.servers().backups().at(ServerId(2)).install;
  EXPECT_EQ(install.backup_of().name(), "ps-4");
  EXPECT_EQ(install.backup_of().incarnation(), backup);
  EXPECT_EQ(install.generation(), 2u);
  EXPECT_EQ(cluster_.StateOf("ps-2"), "catching up");
}

TEST_F(ControllerBackups, OneThatIsNotInStepCannot) {
  Die("ps-1");
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_FAILED);
  EXPECT_THAT(cluster_.controller().GetStatus().reason(), HasSubstr("no backup has all that it has answered"));
}

// It serves nobody before: that must not last for ever.
TEST_F(ControllerBackups, AServerThatNeverHasOneInStepFailsTheJobByName) {
  BringInStep("ps-1", "ps-3");
  cluster_.Pass(absl::Seconds(119));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
  cluster_.Pass(absl::Seconds(2));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_FAILED);
  EXPECT_THAT(cluster_.controller().GetStatus().reason(), HasSubstr("server ps-2 got no backup in step within 2m"));
}

TEST_F(ControllerBackups, WhenBothAreSilentNobodyTakesOver) {
  BringInStep("ps-1", "ps-3");
  cluster_.Silence("ps-1");
  cluster_.Silence("ps-3");
  cluster_.Pass(absl::Milliseconds(1500));
  EXPECT_FALSE(cluster_.HasEvent("takes over")) << "it may be the scheduler's own network";
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
}

TEST_F(ControllerBackups, AServerThatIsBackedIsBelievedDeadEarly) {
  BringInStep("ps-1", "ps-3");
  cluster_.Silence("ps-1");
  cluster_.Silence("ps-2");
  cluster_.Pass(absl::Milliseconds(500));
  EXPECT_TRUE(cluster_.HasEvent("ps-3 takes over"));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING) << "ps-2 has no other, and gets 16 T";
  cluster_.Pass(absl::Milliseconds(1300));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_FAILED);
}

// Otherwise a scheduler that dies and goes on from before could give the place to a backup that lacks what was answered
// since.
TEST_F(ControllerBackups, AReleaseIsSaidOnceItIsSaved) {
  BringInStep("ps-1", "ps-3");
  Say(cluster_.pairing("ps-1"), 1, cluster_.member("ps-3").incarnation, true, /*lost=*/true);
  EXPECT_EQ(Released("ps-1"), 0u);
  EXPECT_EQ(Released("ps-1"), 0u);
  Save();
  EXPECT_EQ(Released("ps-1"), 1u);
  EXPECT_EQ(cluster_.StateOf("ps-3"), "catching up");
  Die("ps-1");
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_FAILED) << "it was released: the backup may lack something";
}

TEST_F(ControllerBackups, WhoWasReleasedIsInStepAgainOnlyByANewAttachment) {
  BringInStep("ps-1", "ps-3");
  Say(cluster_.pairing("ps-1"), 1, cluster_.member("ps-3").incarnation, true, /*lost=*/true);
  Save();
  EXPECT_EQ(Released("ps-1"), 0u);
  // A heartbeat that was on its way for long.
  Say(cluster_.pairing("ps-1"), 1, cluster_.member("ps-3").incarnation, true, false);
  ASSERT_TRUE(cluster_.Beat("ps-1").ok());
  EXPECT_EQ(cluster_.StateOf("ps-3"), "catching up");
  BringInStep("ps-1", "ps-3", 2);
  EXPECT_EQ(cluster_.StateOf("ps-3"), "in step");
}

TEST_F(ControllerBackups, ABackupThatDiesOrIsSilentReleasesItsServer) {
  BringInStep("ps-1", "ps-3");
  BringInStep("ps-2", "ps-4");
  Die("ps-3");
  Save();
  EXPECT_EQ(Released("ps-1"), 1u);
  EXPECT_TRUE(cluster_.HasEvent("ps-1 goes on without its backup for now"));
  EXPECT_EQ(cluster_.StateOf("ps-3"), "dead");

  cluster_.Silence("ps-4");
  cluster_.Pass(absl::Milliseconds(500));
  Save();
  EXPECT_EQ(Released("ps-2"), 1u);
  EXPECT_EQ(cluster_.StateOf("ps-4"), "catching up") << "it may follow again";
  cluster_.Pass(absl::Milliseconds(1500));
  EXPECT_EQ(cluster_.StateOf("ps-4"), "dead");
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
}

TEST_F(ControllerBackups, ASchedulerThatIsStartedAgainKnowsWhoMayTakeOver) {
  BringInStep("ps-1", "ps-3");
  BringInStep("ps-2", "ps-4");
  Say(cluster_.pairing("ps-2"), 1, cluster_.member("ps-4").incarnation, true, /*lost=*/true);
  ASSERT_TRUE(cluster_.Beat("ps-2").ok());
  const state::Scheduler saved = cluster_.Save();
  FakeCluster next(ReplicatedJob());
  ASSERT_TRUE(next.TakeOver(cluster_, saved).ok());
  EXPECT_EQ(next.StateOf("ps-3"), "in step");
  EXPECT_EQ(next.StateOf("ps-4"), "catching up");
  // What the server was not told before it is told now: it was saved.
  next.pairing("ps-2") = cluster_.pairing("ps-2");
  EXPECT_EQ(next.Beat("ps-2")->backup_released(), 1u);
  next.KeepState();
  next.Answer();
  next.Silence("ps-1");
  next.Pass(absl::Milliseconds(500));
  EXPECT_TRUE(next.HasEvent("ps-3 takes over"));
  next.Answer();
  // And the one after that knows that the place was given away.
  FakeCluster third(ReplicatedJob());
  ASSERT_TRUE(third.TakeOver(next, next.Save()).ok());
  const FakeServers::Told& told = third.servers().told().at(ServerId(1));
  ASSERT_TRUE(told.install);
  EXPECT_TRUE(told.install->promote());
  EXPECT_EQ(told.install->generation(), Map(next).servers(0).generation()) << "the same install changes nothing";
}

TEST_F(ControllerBackups, WhenTheJobEndsBackupsAreToldToStop) {
  cluster_.controller().StopJob("enough", false);
  cluster_.Silence("w-1");
  cluster_.Silence("w-2");
  cluster_.Pass(absl::Seconds(3));
  EXPECT_FALSE(cluster_.member("ps-3").beats);
  EXPECT_FALSE(cluster_.member("ps-4").beats);
}

// Of more than 3 T and less than the 4 T that are nobody's silence where death takes 16 T.
TEST_F(ControllerBackups, OwnSleepCostsNobodyItsBackup) {
  BringInStep("ps-1", "ps-3");
  cluster_.Pass(absl::Milliseconds(100));
  cluster_.Advance(absl::Milliseconds(390));
  cluster_.controller().Tick();
  Save();
  EXPECT_EQ(Released("ps-1"), 0u);
  EXPECT_EQ(cluster_.StateOf("ps-3"), "in step");
}

TEST_F(ControllerBackups, TheDeadAreFoundThoughEveryTickIsLate) {
  BringInStep("ps-1", "ps-3");
  cluster_.Pass(absl::Milliseconds(100));
  cluster_.Silence("ps-1");
  for (int i = 0; i < 10; ++i) {
    cluster_.Advance(absl::Milliseconds(150));
    for (const char* name : {"ps-2", "ps-3", "ps-4", "w-1", "w-2"}) ASSERT_TRUE(cluster_.Beat(name).ok());
    cluster_.controller().Tick();
    Save();
  }
  EXPECT_EQ(cluster_.StateOf("ps-1"), "dead");
  EXPECT_EQ(cluster_.StateOf("ps-3"), "live");
}

}  // namespace
}  // namespace slackline::scheduler::controller_backups_test
