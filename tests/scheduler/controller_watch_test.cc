// What the scheduler makes of how training goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler {
namespace {

job::Job AutomaticBound() {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_consistency()->set_staleness_auto(true);
  job.mutable_consistency()->set_staleness_max(8);
  return job;
}

// Both workers have made 20 more steps, and waited for half of their time.
void TrainWaiting(FakeCluster& cluster, absl::Duration time) {
  for (const char* name : {"w-1", "w-2"}) {
    wire::WorkerProgress& progress = cluster.progress(name);
    progress.set_steps(progress.steps() + 20);
    progress.set_compute_seconds(progress.compute_seconds() + 1);
    progress.set_wait_seconds(progress.wait_seconds() + 1);
    progress.set_slack_max(8);
  }
  cluster.Pass(time);
}

TEST(ControllerWatch, BoundTravelsToTheServersUnderANewEpochAndIsAnEvent) {
  FakeCluster cluster(AutomaticBound());
  cluster.Start();
  for (const char* name : {"w-1", "w-2"}) cluster.Range(name);
  cluster.Pass(absl::Seconds(1));
  for (auto& [id, told] : cluster.servers().told()) ASSERT_FALSE(told.members);
  cluster.Silence("ps-2");  // it does not answer: its request stays
  TrainWaiting(cluster, absl::Seconds(1));
  const auto& members = cluster.servers().told().at(ServerId(2)).members;
  ASSERT_TRUE(members);
  EXPECT_EQ(members->staleness_bound(), 2u);
  EXPECT_EQ(members->members_size(), 2);
  EXPECT_TRUE(cluster.HasEvent("the bound of ssp goes from 1 to 2: workers wait 50 % of their time"));
  const std::vector<Report> reports = cluster.controller().TakeReports();
  EXPECT_EQ(reports.back().staleness_bound, 2u);
  EXPECT_EQ(reports.back().staleness_bound_changes, 1u);
  EXPECT_EQ(cluster.controller().Summary().staleness_bound, 2u);
  // Nobody lost anything by it.
  EXPECT_EQ(cluster.StateOf("w-1"), "live");
  EXPECT_EQ(cluster.Beat("w-1")->state(), wire::WORKER_LIVE);
}

TEST(ControllerWatch, FewStepsOrLittleTimeDecideNothing) {
  FakeCluster cluster(AutomaticBound());
  cluster.Start();
  for (const char* name : {"w-1", "w-2"}) {
    cluster.Range(name);
    cluster.progress(name).set_steps(7);
    cluster.progress(name).set_wait_seconds(5);
    cluster.progress(name).set_slack_max(8);
  }
  cluster.Pass(absl::Seconds(10));
  EXPECT_EQ(cluster.controller().Summary().staleness_bound, 1u);
  for (const char* name : {"w-1", "w-2"}) cluster.progress(name).set_steps(8);
  cluster.Pass(absl::Seconds(1));
  EXPECT_EQ(cluster.controller().Summary().staleness_bound, 2u);
}

TEST(ControllerWatch, FixedBoundIsSentAndStays) {
  FakeCluster cluster;
  cluster.AddServer("ps-1");
  cluster.AddWorker("w-1");
  EXPECT_EQ(cluster.servers().told().at(ServerId(1)).members->staleness_bound(), 4u);
  cluster.AddServer("ps-2");
  cluster.AddWorker("w-2");
  cluster.Answer();
  TrainWaiting(cluster, absl::Seconds(5));
  EXPECT_EQ(cluster.controller().Summary().staleness_bound, 4u);
  EXPECT_EQ(cluster.controller().Summary().staleness_bound_changes, 0u);
}

}  // namespace
}  // namespace slackline::scheduler
