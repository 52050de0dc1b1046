#include "scheduler/status/status_alerts.h"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::scheduler::status_alerts_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

wire::JobStatus Healthy() {
  wire::JobStatus status;
  status.set_state("training");
  status.mutable_worker_counts()->set_live(1);
  wire::WorkerView& worker = *status.add_workers();
  worker.set_name("w-1");
  worker.set_state("live");
  wire::ServerView& server = *status.add_servers();
  server.set_name("ps-1");
  server.set_state("live");
  server.set_shards(4);
  status.mutable_disk()->set_free_bytes(uint64_t{9} << 30);
  status.mutable_disk()->set_total_bytes(uint64_t{10} << 30);
  return status;
}

std::vector<std::string> KindsOf(wire::JobStatus status) {
  AddAlerts(status);
  std::vector<std::string> kinds;
  for (const wire::Alert& alert : status.alerts()) kinds.push_back(alert.kind());
  return kinds;
}

TEST(StatusAlerts, AHealthyJobHasNone) { EXPECT_THAT(KindsOf(Healthy()), IsEmpty()); }

TEST(StatusAlerts, AWorkerThatDiedIsOneForTenMinutes) {
  wire::JobStatus status = Healthy();
  wire::WorkerView& dead = *status.add_workers();
  dead.set_name("w-2");
  dead.set_state("dead");
  dead.set_reason("signal 9");
  dead.set_silent_s(3);
  EXPECT_THAT(KindsOf(status), ElementsAre("worker_lost"));
  wire::JobStatus said = status;
  AddAlerts(said);
  EXPECT_THAT(said.alerts(0).text(), HasSubstr("worker w-2 is lost: signal 9, 3s ago"));
  dead.set_silent_s(700);
  EXPECT_THAT(KindsOf(status), IsEmpty());
}

TEST(StatusAlerts, ManyWorkersThatDiedShareOne) {
  wire::JobStatus status = Healthy();
  for (int i = 0; i < 300; ++i) {
    wire::WorkerView& dead = *status.add_workers();
    dead.set_name("x-" + std::to_string(i));
    dead.set_state("dead");
  }
  AddAlerts(status);
  ASSERT_EQ(status.alerts_size(), 1);
  EXPECT_THAT(status.alerts(0).text(), HasSubstr("300 workers are lost: x-0, x-1, x-2, x-3, x-4 and 295 more"));
}

TEST(StatusAlerts, WithoutWorkersOrProgressNothingIsTrained) {
  wire::JobStatus nobody = Healthy();
  nobody.mutable_worker_counts()->set_live(0);
  EXPECT_THAT(KindsOf(nobody), ElementsAre("no_workers"));
  wire::JobStatus idle = Healthy();
  idle.mutable_workers(0)->set_idle_s(31);
  EXPECT_THAT(KindsOf(idle), ElementsAre("no_progress"));
  wire::WorkerView& other = *idle.add_workers();
  other.set_state("live");
  other.set_idle_s(1);
  EXPECT_THAT(KindsOf(idle), IsEmpty()) << "one goes on";
}

TEST(StatusAlerts, ServersAreLostAloneOrWithoutSnapshots) {
  wire::JobStatus status = Healthy();
  status.mutable_servers(0)->set_wants_backup(true);
  EXPECT_THAT(KindsOf(status), ElementsAre("no_backup"));
  status.mutable_servers(0)->mutable_backup()->set_name("ps-2");
  EXPECT_THAT(KindsOf(status), ElementsAre("no_backup")) << "it is not in step yet";
  status.mutable_servers(0)->mutable_backup()->set_in_step(true);
  EXPECT_THAT(KindsOf(status), IsEmpty());
  status.mutable_servers(0)->set_snapshot_error("disk full");
  EXPECT_THAT(KindsOf(status), ElementsAre("snapshots_failing"));
  status.mutable_servers(0)->set_state("dead");
  EXPECT_THAT(KindsOf(status), ElementsAre("server_lost"));
}

TEST(StatusAlerts, TheRestIsSaidAndTheWorstComesFirst) {
  wire::JobStatus status = Healthy();
  status.mutable_asynchrony()->set_at_bound_s(601);
  EXPECT_THAT(KindsOf(status), IsEmpty()) << "nobody waits";
  status.mutable_workers(0)->set_wait_fraction(0.3);
  status.mutable_checkpoints()->set_whole(3);
  status.mutable_checkpoints()->set_failed(4);
  status.mutable_disk()->set_free_bytes(uint64_t{1} << 29);
  status.mutable_progress()->set_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(KindsOf(status), ElementsAre("diverging", "slack_at_bound", "checkpoint_failed", "disk"));
  status.mutable_checkpoints()->set_whole(5);
  status.mutable_asynchrony()->set_at_bound_s(599);
  status.mutable_disk()->set_free_bytes(uint64_t{1} << 26);
  status.mutable_progress()->set_loss(1);
  EXPECT_THAT(KindsOf(status), ElementsAre("disk"));
  status.set_state("failed");
  EXPECT_THAT(KindsOf(status), ElementsAre("job_failed"));
}

TEST(StatusNodes, MembersAreByMachineAndSwitch) {
  wire::JobStatus status = Healthy();
  status.mutable_workers(0)->set_topology("spine.leaf2.n3");
  status.mutable_workers(0)->set_host("n3.cluster");
  status.mutable_servers(0)->set_host("n1");
  status.mutable_servers(0)->mutable_backup()->set_name("ps-2");
  status.mutable_servers(0)->mutable_backup()->set_topology("spine.leaf2.n3");
  wire::WorkerView& gone = *status.add_workers();
  gone.set_state("dead");
  gone.set_host("n9");
  AddNodes(status);
  ASSERT_EQ(status.nodes_size(), 2);
  EXPECT_EQ(status.nodes(0).host(), "n1");
  EXPECT_THAT(status.nodes(0).servers(), ElementsAre("ps-1"));
  EXPECT_EQ(status.nodes(1).switch_name(), "spine.leaf2");
  EXPECT_EQ(status.nodes(1).host(), "n3");
  EXPECT_THAT(status.nodes(1).workers(), ElementsAre("w-1"));
  EXPECT_THAT(status.nodes(1).backups(), ElementsAre("ps-2"));
}

}  // namespace
}  // namespace slackline::scheduler::status_alerts_test
