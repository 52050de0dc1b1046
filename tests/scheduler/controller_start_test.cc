// The start of a job, from the first registration to the first task.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::controller_start_test {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

TEST(ControllerStart, TrainingBeginsForAllAtOnceWhenEverybodyIsThere) {
  FakeCluster cluster;
  cluster.AddServer("ps-1");
  cluster.AddWorker("w-1");
  cluster.AddServer("ps-2");
  cluster.Answer();
  EXPECT_EQ(cluster.controller().state(), wire::JOB_STARTING);
  EXPECT_EQ(cluster.Beat("w-1")->state(), wire::WORKER_JOINING);
  EXPECT_EQ(cluster.Next("w-1").status().code(), StatusCode::kUnavailable);
  cluster.AddWorker("w-2");
  cluster.Answer();
  EXPECT_EQ(cluster.controller().state(), wire::JOB_TRAINING);
  EXPECT_EQ(cluster.Beat("w-1")->state(), wire::WORKER_LIVE);
  EXPECT_EQ(cluster.Beat("w-2")->state(), wire::WORKER_LIVE);
}

TEST(ControllerStart, ServersGetTheirShardsOnceModelAndServersAreKnown) {
  FakeCluster cluster;
  cluster.AddServer("ps-1");
  cluster.AddServer("ps-2");
  EXPECT_FALSE(cluster.servers().told()[ServerId(1)].install);
  wire::GetShardMapRequest request;
  request.set_job(FakeCluster::kJob);
  EXPECT_EQ(cluster.controller().GetShardMap(request).status().code(), StatusCode::kUnavailable);
  cluster.AddWorker("w-1");
  const auto& install = cluster.servers().told()[ServerId(1)].install;
  ASSERT_TRUE(install);
  EXPECT_EQ(install->trained_elements(), 10000u);
  EXPECT_EQ(install->samples_per_epoch(), 100u);
  EXPECT_EQ(install->shards_size(), 8);
  const auto map = cluster.controller().GetShardMap(request);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->shards_size(), 16);
  EXPECT_EQ(map->servers_size(), 2);
  EXPECT_EQ(map->servers(1).address(), "ps-2:1");
}

TEST(ControllerStart, ServersGetShardsByTheirLinks) {
  FakeCluster cluster;
  cluster.AddServer("ps-1", 25'000);
  cluster.AddServer("ps-2", 75'000);
  cluster.AddWorker("w-1");
  EXPECT_EQ(cluster.servers().told()[ServerId(1)].install->shards_size(), 4);
  EXPECT_EQ(cluster.servers().told()[ServerId(2)].install->shards_size(), 12);
}

TEST(ControllerStart, ALinkThatIsNotKnownMakesAllAlike) {
  FakeCluster cluster;
  cluster.AddServer("ps-1", 25'000);
  cluster.AddServer("ps-2");
  cluster.AddWorker("w-1");
  EXPECT_EQ(cluster.servers().told()[ServerId(1)].install->shards_size(), 8);
}

TEST(ControllerStart, EveryLiveWorkerSeedsUntilAllServersHaveWeights) {
  FakeCluster cluster;
  cluster.Start();
  EXPECT_TRUE(cluster.Beat("w-1")->send_seed());
  EXPECT_TRUE(cluster.Beat("w-2")->send_seed());
  cluster.Seed("ps-1");
  cluster.Pass(absl::Milliseconds(100));
  EXPECT_TRUE(cluster.Beat("w-2")->send_seed());
  cluster.Seed("ps-2");
  cluster.Pass(absl::Milliseconds(100));
  EXPECT_FALSE(cluster.Beat("w-2")->send_seed());
}

TEST(ControllerStart, DeadlineNamesWhoIsThereAndWhoIsMissing) {
  FakeCluster cluster;
  cluster.AddServer("ps-1");
  cluster.AddWorker("w-1");
  cluster.Pass(absl::Seconds(10));
  EXPECT_EQ(cluster.controller().state(), wire::JOB_STARTING);
  cluster.Pass(absl::Seconds(1));
  EXPECT_EQ(cluster.controller().state(), wire::JOB_FAILED);
  const std::string reason = cluster.controller().GetStatus().reason();
  EXPECT_THAT(reason, HasSubstr("within 10s"));
  EXPECT_THAT(reason, HasSubstr("1 of 2 servers (ps-1)"));
  EXPECT_THAT(reason, HasSubstr("1 of 2 workers (w-1)"));
}

TEST(ControllerStart, DeadlineNamesAServerThatDoesNotTakeItsShards) {
  FakeCluster cluster;
  cluster.AddServer("ps-1");
  cluster.AddServer("ps-2");
  cluster.AddWorker("w-1");
  cluster.AddWorker("w-2");
  const ServerRef first = cluster.servers().told()[ServerId(1)].server;
  cluster.controller().Installed(first, {});
  EXPECT_THAT(cluster.controller().GetStatus().reason(), HasSubstr("ps-2 to take their shards"));
}

TEST(ControllerStart, ProcessThatDiedBeforeItRegisteredIsNamed) {
  FakeCluster cluster;
  wire::ReportExitRequest exit;
  exit.set_job(FakeCluster::kJob);
  exit.set_role(wire::MEMBER_ROLE_WORKER);
  exit.set_name("w-2");
  exit.set_reason("killed by signal 9");
  ASSERT_TRUE(cluster.controller().ReportExit(exit).ok());
  EXPECT_THAT(cluster.controller().GetStatus().reason(), HasSubstr("w-2 ended early (killed by signal 9)"));
}

TEST(ControllerStart, OtherJobFileIsRefused) {
  FakeCluster cluster;
  wire::RegisterServerRequest server;
  server.set_name("ps-1");
  server.set_address("ps-1:1");
  server.set_job_fingerprint(6);
  const absl::Status refused = cluster.controller().RegisterServer(server).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("another job file"));
  wire::RegisterWorkerRequest worker = FakeCluster::WorkerRequest("w-1");
  worker.set_job_fingerprint(6);
  EXPECT_EQ(cluster.controller().RegisterWorker(worker).status().code(), StatusCode::kInvalidArgument);
}

TEST(ControllerStart, OtherProtocolIsRefusedBeforeTheJobFileIsCompared) {
  FakeCluster cluster;
  wire::RegisterServerRequest server;
  server.set_name("ps-1");
  server.set_address("ps-1:1");
  server.mutable_version()->set_major(9);
  wire::RegisterWorkerRequest worker = FakeCluster::WorkerRequest("w-1");
  worker.set_job_fingerprint(6);
  *worker.mutable_version() = server.version();
  for (const absl::Status& refused :
       {cluster.controller().RegisterServer(server).status(), cluster.controller().RegisterWorker(worker).status()}) {
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("speaks protocol 9.0; this process speaks 1."));
  }
  EXPECT_EQ(cluster.controller().GetStatus().members_size(), 0);
}

TEST(ControllerStart, NewerMinorProtocolIsAcceptedAndNamed) {
  FakeCluster cluster;
  wire::RegisterWorkerRequest worker = FakeCluster::WorkerRequest("w-1");
  worker.mutable_version()->set_major(1);
  worker.mutable_version()->set_minor(999);
  worker.mutable_version()->set_build("7.0.0 (abc)");
  const auto reply = cluster.controller().RegisterWorker(worker);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->version().major(), 1u);
  EXPECT_TRUE(cluster.HasEvent("worker w-1 speaks protocol 1.999 (slackline 7.0.0 (abc)), which is newer"));
}

TEST(ControllerStart, OtherModelIsRefusedAndTheFirstStays) {
  FakeCluster cluster;
  cluster.AddWorker("w-1");
  wire::RegisterWorkerRequest other = FakeCluster::WorkerRequest("w-2");
  other.mutable_tensors(0)->set_shape(0, 10001);
  EXPECT_EQ(cluster.controller().RegisterWorker(other).status().code(), StatusCode::kInvalidArgument);
  cluster.AddWorker("w-2");
}

TEST(ControllerStart, ServerTooManyIsRefused) {
  FakeCluster cluster;
  cluster.AddServer("ps-1");
  cluster.AddServer("ps-2");
  wire::RegisterServerRequest third;
  third.set_name("ps-3");
  third.set_address("ps-3:1");
  third.set_job_fingerprint(FakeCluster::kFingerprint);
  EXPECT_EQ(cluster.controller().RegisterServer(third).status().code(), StatusCode::kFailedPrecondition);
}

TEST(ControllerStart, RegistrationWhoseReplyWasLostDoesNotCountTwice) {
  FakeCluster cluster;
  wire::RegisterWorkerRequest request = FakeCluster::WorkerRequest("w-1");
  request.set_pid(1234);
  const auto first = cluster.controller().RegisterWorker(request);
  const auto again = cluster.controller().RegisterWorker(request);
  EXPECT_EQ(first->worker(), again->worker());
  EXPECT_LT(first->incarnation(), again->incarnation());
}

TEST(ControllerStart, AnotherJobsNumberIsRefused) {
  FakeCluster cluster;
  wire::HeartbeatRequest heartbeat;
  heartbeat.set_job(1);
  EXPECT_EQ(cluster.controller().Heartbeat(heartbeat).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(cluster.controller().NextTask({}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(cluster.controller().GetShardMap({}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(cluster.controller().ReportEvaluation({}).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(cluster.controller().ReportExit({}).code(), StatusCode::kFailedPrecondition);
}

TEST(ControllerStart, ModelThatIsTooSmallForSoManyServersIsNamed) {
  FakeCluster cluster;
  for (const char* name : {"ps-1", "ps-2"}) cluster.AddServer(name);
  wire::RegisterWorkerRequest small = FakeCluster::WorkerRequest("w-1");
  small.mutable_tensors(0)->set_shape(0, 5);
  ASSERT_TRUE(cluster.controller().RegisterWorker(small).ok());
  EXPECT_EQ(cluster.controller().state(), wire::JOB_FAILED);
  EXPECT_EQ(
      cluster.controller().GetStatus().reason(),
      "the model has 5 elements, and a server takes 16 of them at least: found cluster.servers: 2; allowed is 1 to "
      "1 with this model");
}

}  // namespace
}  // namespace slackline::scheduler::controller_start_test
