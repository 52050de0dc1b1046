// The end of a job, and how its members are told to leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::controller_end_test {
namespace {

using testing::HasSubstr;

TEST(ControllerEnd, DeadServerFailsTheJobByName) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Silence("ps-2");
  cluster.Pass(absl::Milliseconds(1600));
  EXPECT_EQ(cluster.controller().state(), wire::JOB_TRAINING);
  cluster.Pass(absl::Milliseconds(100));
  EXPECT_EQ(cluster.controller().state(), wire::JOB_FAILED);
  const std::string reason = cluster.controller().GetStatus().reason();
  EXPECT_THAT(reason, HasSubstr("server ps-2 (ps-2:1) is dead: silent for"));
  EXPECT_THAT(reason, HasSubstr("last heartbeat came 1.7s ago"));
}

// A scheduler that died now would go on from a state in which there is work, and nobody left to do it.
TEST(ControllerEnd, NobodyIsToldOfTheEndBeforeItIsKept) {
  FakeCluster cluster(FakeCluster::SmallJob(), /*keeps_state=*/true);
  cluster.Start();
  const state::Scheduler before = cluster.Save();
  cluster.controller().StopJob("enough", /*failed=*/false);
  cluster.controller().StateKept(before);
  EXPECT_FALSE(cluster.Beat("w-1")->leave());
  EXPECT_EQ(cluster.Next("w-1").status().code(), absl::StatusCode::kUnavailable);
  cluster.controller().StateKept(cluster.Save());
  EXPECT_TRUE(cluster.Beat("w-1")->leave());
  EXPECT_TRUE(cluster.Next("w-1")->has_leave());
}

TEST(ControllerEnd, AnEndThatCannotBeKeptIsToldAllTheSame) {
  FakeCluster cluster(FakeCluster::SmallJob(), /*keeps_state=*/true);
  cluster.Start();
  cluster.controller().StopJob("enough", /*failed=*/false);
  cluster.Pass(absl::Milliseconds(1600));
  EXPECT_FALSE(cluster.Beat("w-1")->leave());
  cluster.Pass(absl::Milliseconds(100));
  EXPECT_TRUE(cluster.Beat("w-1")->leave());
}

TEST(ControllerEnd, SummaryHasTheWholeRun) {
  FakeCluster cluster;
  cluster.Start();
  const uint64_t first = cluster.Range("w-1");
  cluster.progress("w-1").set_samples(100);
  cluster.progress("w-1").set_steps(1);
  cluster.progress("w-1").set_loss_sum(50);
  EXPECT_TRUE(cluster.Next("w-1", first)->has_evaluate());
  cluster.Pass(absl::Seconds(2));
  ASSERT_TRUE(cluster.Evaluated("w-1", 1, false).ok());
  cluster.Silence("w-2");
  cluster.Pass(absl::Seconds(2));
  cluster.AddWorker("w-2");  // the same process again
  cluster.progress("w-2").set_samples(7);
  cluster.Pass(absl::Seconds(1));
  cluster.controller().StopJob("enough", /*failed=*/false);
  cluster.Pass(absl::Seconds(10));
  const RunSummary summary = cluster.controller().Summary();
  EXPECT_EQ(summary.state, "stopped");
  EXPECT_EQ(summary.reason, "enough");
  EXPECT_EQ(summary.mode, "ssp");
  EXPECT_DOUBLE_EQ(summary.time_s, 5);
  EXPECT_DOUBLE_EQ(summary.train_s, 5);
  EXPECT_EQ(summary.totals.samples(), 107u);
  EXPECT_EQ(summary.epochs_done, 1u);
  EXPECT_EQ(summary.worker_deaths, 1u);
  ASSERT_EQ(summary.worker_list.size(), 2u);
  EXPECT_EQ(summary.worker_list[0].name, "w-1");
  EXPECT_EQ(summary.worker_list[0].totals.samples(), 100u);
  EXPECT_EQ(summary.worker_list[1].totals.samples(), 7u);
  ASSERT_EQ(summary.evaluations.size(), 1u);
  EXPECT_DOUBLE_EQ(summary.evaluations[0].time_s, 0) << "when it began";
  EXPECT_EQ(summary.evaluations[0].samples, 100u);
  EXPECT_EQ(summary.evaluations[0].accuracy, 0.9);
}

TEST(ControllerEnd, ServerWhoseExitIsReportedFailsTheJobAtOnce) {
  FakeCluster cluster;
  cluster.Start();
  wire::ReportExitRequest exit;
  exit.set_job(FakeCluster::kJob);
  exit.set_role(wire::MEMBER_ROLE_SERVER);
  exit.set_name("ps-1");
  exit.set_reason("killed by signal 9");
  ASSERT_TRUE(cluster.controller().ReportExit(exit).ok());
  EXPECT_EQ(cluster.controller().state(), wire::JOB_FAILED);
  EXPECT_THAT(cluster.controller().GetStatus().reason(), HasSubstr("killed by signal 9"));
}

TEST(ControllerEnd, NamesakeOfALivingServerIsRefusedAndChangesNothing) {
  FakeCluster cluster;
  cluster.Start();
  wire::RegisterServerRequest again;
  again.set_name("ps-1");
  again.set_address("ps-1:2");
  again.set_job_fingerprint(FakeCluster::kFingerprint);
  const auto refused = cluster.controller().RegisterServer(again);
  EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
  EXPECT_THAT(refused.status().message(), HasSubstr("ps-1 is there already, at ps-1:1"));
  EXPECT_EQ(cluster.controller().state(), wire::JOB_TRAINING);
}

TEST(ControllerEnd, ServerStartedAgainDuringTrainingFailsTheJob) {
  FakeCluster cluster;
  cluster.Start();
  wire::RegisterServerRequest again;
  again.set_name("ps-1");
  again.set_address("ps-1:2");
  again.set_job_fingerprint(FakeCluster::kFingerprint);
  cluster.Advance(absl::Milliseconds(301));
  EXPECT_FALSE(cluster.controller().RegisterServer(again).ok());
  EXPECT_THAT(cluster.controller().GetStatus().reason(), HasSubstr("was started again in the middle of training"));
}

TEST(ControllerEnd, RefusedCallFailsTheJobWithTheServersWords) {
  FakeCluster cluster;
  cluster.Start();
  const ServerRef first = cluster.servers().told()[ServerId(1)].server;
  cluster.controller().Refused(first, absl::InvalidArgumentError("shard 3 ends before it begins"));
  EXPECT_EQ(cluster.controller().state(), wire::JOB_FAILED);
  EXPECT_THAT(cluster.controller().GetStatus().reason(), HasSubstr("shard 3 ends before it begins"));
}

TEST(ControllerEnd, JobWithoutWorkersWaitsForNewOnesThenFailsNamingTheOld) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Silence("w-1");
  cluster.Silence("w-2");
  cluster.Pass(absl::Seconds(11));
  EXPECT_EQ(cluster.controller().state(), wire::JOB_TRAINING);
  cluster.Pass(absl::Seconds(2));
  EXPECT_EQ(cluster.controller().state(), wire::JOB_FAILED);
  const std::string reason = cluster.controller().GetStatus().reason();
  EXPECT_THAT(reason, HasSubstr("w-1 (silent for"));
  EXPECT_THAT(reason, HasSubstr("w-2 (silent for"));
}

TEST(ControllerEnd, NewWorkerSavesADesertedJob) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Silence("w-1");
  cluster.Silence("w-2");
  cluster.Pass(absl::Seconds(9));
  cluster.AddWorker("w-3");
  cluster.Pass(absl::Seconds(9));
  EXPECT_EQ(cluster.controller().state(), wire::JOB_TRAINING);
  cluster.Range("w-3");
}

TEST(ControllerEnd, WorkersLeaveFirstThenServersStopThenItIsOver) {
  FakeCluster cluster;
  cluster.Start();
  cluster.controller().StopJob("the user said so", /*failed=*/false);
  EXPECT_EQ(cluster.controller().state(), wire::JOB_STOPPED);
  // Workers that were told, but still send heartbeats, are still at work.
  cluster.Pass(absl::Milliseconds(500));
  EXPECT_TRUE(cluster.Beat("w-1")->leave());
  EXPECT_EQ(cluster.Beat("w-1")->leave_reason(), "the user said so");
  EXPECT_FALSE(cluster.Beat("ps-1")->leave());
  cluster.Silence("w-1");
  cluster.Silence("w-2");
  cluster.Pass(absl::Milliseconds(500));
  EXPECT_FALSE(cluster.member("ps-1").beats);  // stopped
  EXPECT_FALSE(cluster.controller().finished());
  cluster.controller().GetStatus();
  cluster.Pass(absl::Milliseconds(100));
  EXPECT_TRUE(cluster.controller().finished());
}

TEST(ControllerEnd, DismissalEndsTheWaitForSomebodyToAskHowItEnded) {
  for (const bool dismissed : {false, true}) {
    FakeCluster cluster;
    cluster.Start();
    cluster.controller().StopJob("the user said so", /*failed=*/false);
    for (const char* name : {"w-1", "w-2"}) {
      cluster.Beat(name).IgnoreError();  // is told to leave
      cluster.Silence(name);
    }
    cluster.Pass(absl::Milliseconds(500));
    EXPECT_FALSE(cluster.controller().finished());
    if (dismissed) cluster.controller().Dismiss("the scheduler got SIGTERM");
    cluster.Pass(absl::Milliseconds(100));
    EXPECT_EQ(cluster.controller().finished(), dismissed);
    EXPECT_EQ(cluster.controller().GetStatus().reason(), "the user said so");
  }
}

TEST(ControllerEnd, DismissalStopsTheJobAndLeavesTimeToAskHowItEnded) {
  FakeCluster cluster;
  cluster.Start();
  cluster.controller().Dismiss("the scheduler got SIGTERM");
  EXPECT_EQ(cluster.controller().state(), wire::JOB_STOPPED);
  for (const char* name : {"w-1", "w-2"}) {
    cluster.Beat(name).IgnoreError();
    cluster.Silence(name);
  }
  cluster.Pass(absl::Milliseconds(600));
  EXPECT_FALSE(cluster.controller().finished());
}

TEST(ControllerEnd, DismissalBeforeTrainingBeganWaitsForNobodyToAsk) {
  FakeCluster cluster;
  cluster.controller().Dismiss("the scheduler got SIGTERM");
  cluster.Pass(absl::Milliseconds(100));
  EXPECT_TRUE(cluster.controller().finished());
}

TEST(ControllerEnd, WhereNobodyWillAskHowItEndedThereIsNoWaitForThat) {
  FakeCluster cluster(FakeCluster::SmallJob(), /*keeps_state=*/false, /*unwatched=*/true);
  cluster.Start();
  cluster.controller().Dismiss("the scheduler got SIGTERM");
  cluster.Beat("w-1").IgnoreError();
  cluster.Silence("w-1");
  cluster.Pass(absl::Milliseconds(500));
  EXPECT_FALSE(cluster.controller().finished()) << "w-2 is at work";
  cluster.Beat("w-2").IgnoreError();
  cluster.Silence("w-2");
  cluster.Pass(absl::Milliseconds(500));
  EXPECT_FALSE(cluster.member("ps-1").beats) << "it was stopped";
  EXPECT_TRUE(cluster.controller().finished());
}

TEST(ControllerEnd, EndDoesNotWaitForeverForAnybody) {
  FakeCluster cluster;
  cluster.Start();
  cluster.controller().StopJob("enough", /*failed=*/true);
  cluster.Pass(absl::Milliseconds(1600));  // w-1 and w-2 stay
  EXPECT_FALSE(cluster.controller().finished());
  cluster.Pass(absl::Milliseconds(6000));  // nobody asks how it ended
  EXPECT_TRUE(cluster.controller().finished());
  EXPECT_EQ(cluster.controller().state(), wire::JOB_FAILED);
}

TEST(ControllerEnd, LaterEndingChangesNothing) {
  FakeCluster cluster;
  cluster.Start();
  cluster.controller().StopJob("first", false);
  cluster.controller().StopJob("second", true);
  EXPECT_EQ(cluster.controller().state(), wire::JOB_STOPPED);
  EXPECT_EQ(cluster.controller().GetStatus().reason(), "first");
}

TEST(ControllerEnd, NobodyJoinsAJobThatHasEnded) {
  FakeCluster cluster;
  cluster.Start();
  cluster.controller().StopJob("over", false);
  const absl::Status refused = cluster.controller().RegisterWorker(FakeCluster::WorkerRequest("w-3")).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("over"));
}

}  // namespace
}  // namespace slackline::scheduler::controller_end_test
