// Members of a job, as monitoring sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::controller_members_test {
namespace {

using testing::ElementsAre;
using testing::Pair;

class ControllerMembers : public testing::Test {
 protected:
  static std::vector<std::string> Addresses(FakeCluster& cluster) {
    std::vector<std::string> addresses;
    for (const ScrapeTarget& target : cluster.controller().Members().scrape_targets) {
      addresses.push_back(target.address);
    }
    return addresses;
  }

  FakeCluster cluster_;
};

TEST_F(ControllerMembers, TargetsAreThoseWhoAreThere) {
  EXPECT_THAT(Addresses(cluster_), ElementsAre());
  cluster_.Start();
  EXPECT_THAT(Addresses(cluster_), ElementsAre("ps-1:9", "ps-2:9", "w-1:9", "w-2:9"));
  const std::vector<ScrapeTarget> targets = cluster_.controller().Members().scrape_targets;
  EXPECT_EQ(targets[0], (ScrapeTarget{"ps-1:9", "ps-1", "server"}));
  EXPECT_EQ(targets[3], (ScrapeTarget{"w-2:9", "w-2", "worker"}));
  cluster_.Silence("w-1");
  cluster_.Pass(absl::Seconds(3));
  EXPECT_THAT(Addresses(cluster_), ElementsAre("ps-1:9", "ps-2:9", "w-2:9"));
}

TEST_F(ControllerMembers, OneThatServesNoMetricsOrSaysNonsenseIsNoTarget) {
  wire::RegisterWorkerRequest request = FakeCluster::WorkerRequest("w-1");
  request.clear_metrics_address();
  ASSERT_TRUE(cluster_.controller().RegisterWorker(request).ok());
  request = FakeCluster::WorkerRequest("w-2");
  request.set_metrics_address("no port");
  ASSERT_TRUE(cluster_.controller().RegisterWorker(request).ok());
  EXPECT_THAT(Addresses(cluster_), ElementsAre());
}

TEST_F(ControllerMembers, ServersOfAnEarlierProtocolGetWholeSets) {
  cluster_.AddServer("ps-1");
  cluster_.AddServer("ps-2", /*link_mbit=*/0, kMinorOfMemberChanges - 1);
  for (const char* name : {"w-1", "w-2"}) cluster_.AddWorker(name);
  cluster_.Answer();
  const auto numbers_of = [](const FakeServers::Told& told) {
    std::vector<uint32_t> numbers;
    for (const wire::Member& member : told.members->members()) numbers.push_back(member.worker());
    return numbers;
  };
  for (const bool restarted : {false, true}) {
    FakeCluster after;
    if (restarted) {
      ASSERT_TRUE(after.TakeOver(cluster_, cluster_.Save()).ok());
      after.Answer();
    }
    FakeCluster& cluster = restarted ? after : cluster_;
    const uint32_t number = cluster.AddWorker("w-3").id;
    auto& told = cluster.servers().told();
    const FakeServers::Told &one = told.at(ServerId(1)), &two = told.at(ServerId(2));
    ASSERT_TRUE(one.members && two.members);
    EXPECT_TRUE(one.members->has_since_epoch());
    EXPECT_THAT(numbers_of(one), ElementsAre(number));
    EXPECT_FALSE(two.members->has_since_epoch());
    EXPECT_THAT(numbers_of(two), ElementsAre(1u, 2u, number));
    cluster.Answer();
    ASSERT_TRUE(cluster.Leave("w-3").ok());
    ASSERT_TRUE(one.members && two.members);
    EXPECT_THAT(numbers_of(one), ElementsAre());
    EXPECT_THAT(one.members->gone(), ElementsAre(number));
    EXPECT_THAT(numbers_of(two), ElementsAre(1u, 2u));
    EXPECT_THAT(two.members->gone(), ElementsAre());
    cluster.Answer();
  }
}

TEST_F(ControllerMembers, TargetsOutliveTheScheduler) {
  cluster_.Start();
  FakeCluster after;
  ASSERT_TRUE(after.TakeOver(cluster_, cluster_.Save()).ok());
  EXPECT_THAT(Addresses(after), ElementsAre("ps-1:9", "ps-2:9", "w-1:9", "w-2:9"));
}

TEST_F(ControllerMembers, MembersAreCountedByState) {
  MembersView view = cluster_.controller().Members();
  EXPECT_EQ(view.job_state, "starting");
  EXPECT_EQ(view.workers.at("live"), 0u);
  EXPECT_EQ(view.workers_wanted, 2u);
  cluster_.Start();
  cluster_.progress("w-1").set_clock(7);
  cluster_.progress("w-2").set_clock(5);
  cluster_.Pass(absl::Milliseconds(100));
  view = cluster_.controller().Members();
  EXPECT_EQ(view.job_state, "training");
  EXPECT_EQ(view.workers.at("live"), 2u);
  EXPECT_EQ(view.servers.at("live"), 2u);
  EXPECT_EQ(view.servers_wanted, 2u);
  EXPECT_EQ(view.backups_wanted, 0u);
  EXPECT_EQ(view.samples_total, 200u);
  EXPECT_THAT(view.clocks, ElementsAre(Pair("w-1", 7), Pair("w-2", 5)));
  cluster_.Silence("w-1");
  cluster_.Pass(absl::Seconds(3));
  view = cluster_.controller().Members();
  EXPECT_EQ(view.workers.at("live"), 1u);
  EXPECT_EQ(view.workers.at("dead"), 1u);
  EXPECT_THAT(view.clocks, ElementsAre(Pair("w-2", 5)));
}

TEST_F(ControllerMembers, NoMoreThanSomeClocksAreNamed) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_cluster()->set_workers(MembersView::kNamedClocksMax + 3);
  FakeCluster many(job);
  for (const char* name : {"ps-1", "ps-2"}) many.AddServer(name);
  for (size_t i = 0; i < MembersView::kNamedClocksMax + 3; ++i) many.AddWorker("w-" + std::to_string(i));
  many.Answer();
  const MembersView view = many.controller().Members();
  EXPECT_EQ(view.workers.at("live"), MembersView::kNamedClocksMax + 3);
  EXPECT_EQ(view.clocks.size(), MembersView::kNamedClocksMax);
}

}  // namespace
}  // namespace slackline::scheduler::controller_members_test
