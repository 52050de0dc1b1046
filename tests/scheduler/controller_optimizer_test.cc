// The optimizer that scripts give, where the job file leaves it to them.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::controller_optimizer_test {
namespace {

using testing::HasSubstr;

// Returns a job of scripts whose file names the settings `named` of the optimizer.
job::Job OfScripts(const job::Optimizer& named = {}) {
  job::Job job;
  job.mutable_model()->set_kind(job::Model::EXTERNAL);
  job.mutable_cluster()->set_servers(2);
  job.mutable_cluster()->set_workers(2);
  job.mutable_training()->set_epochs(4);
  job.mutable_training()->set_batch_size(100);
  job.mutable_training()->set_evaluate_every_epochs(0);
  job.mutable_checkpoint()->set_folder("/checkpoints");
  *job.mutable_optimizer() = named;
  return Resolve(job);
}

wire::RegisterWorkerRequest Script(const std::string& name, double lr = 0.002) {
  wire::RegisterWorkerRequest request = FakeCluster::WorkerRequest(name);
  request.mutable_optimizer()->set_kind(job::Optimizer::ADAMW);
  request.mutable_optimizer()->set_lr(lr);
  wire::TensorSpec& bias = *request.add_tensors();
  bias.set_name("bias");
  bias.add_shape(100);
  bias.set_trained(true);
  bias.set_group(1);
  job::ParameterGroup& group = *request.mutable_optimizer()->add_groups();
  group.set_match("biases");
  group.set_weight_decay(0);
  return request;
}

absl::Status Join(FakeCluster& cluster, const wire::RegisterWorkerRequest& request) {
  const auto reply = cluster.controller().RegisterWorker(request);
  if (reply.ok()) cluster.Adopt({wire::MEMBER_ROLE_WORKER, request.name(), reply->worker(), reply->incarnation()});
  return reply.status();
}

void AddServers(FakeCluster& cluster) {
  for (const char* const server : {"ps-1", "ps-2"}) {
    cluster.AddServer(server);
    cluster.restored(server).set_takes_optimizer(true);
  }
}

void Start(FakeCluster& cluster) {
  AddServers(cluster);
  for (const char* const worker : {"w-1", "w-2"}) ASSERT_TRUE(Join(cluster, Script(worker)).ok());
  cluster.Answer();
  ASSERT_EQ(cluster.controller().state(), wire::JOB_TRAINING) << cluster.controller().GetStatus().reason();
}

TEST(ControllerOptimizer, ServersGetWhatTheFirstScriptGives) {
  FakeCluster cluster(OfScripts());
  AddServers(cluster);
  EXPECT_EQ(cluster.controller().Summary().optimizer, "");
  ASSERT_TRUE(Join(cluster, Script("w-1")).ok());
  for (const auto& [id, told] : cluster.servers().told()) {
    ASSERT_TRUE(told.install);
    EXPECT_EQ(told.install->optimizer().kind(), job::Optimizer::ADAMW);
    EXPECT_EQ(told.install->optimizer().lr(), 0.002);
  }
  EXPECT_EQ(cluster.servers().told()[ServerId(2)].install->groups(0).begin(), 10000u);
  EXPECT_EQ(cluster.controller().Summary().optimizer,
            "adamw, lr 0.002, beta1 0.9, beta2 0.999, epsilon 1e-08, weight_decay 0; biases: lr 0.002, weight_decay 0");
  EXPECT_TRUE(cluster.HasEvent("the optimizer is that of the script: adamw, lr 0.002, "));
  const absl::Status other = Join(cluster, Script("w-2", 0.1));
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("the script of worker w-2 gives optimizer.lr: 0.1, but that of worker w-1"));
  EXPECT_TRUE(Join(cluster, Script("w-2")).ok());
}

TEST(ControllerOptimizer, TheJobFileDecides) {
  job::Optimizer named;
  named.set_lr(0.05);
  FakeCluster cluster(OfScripts(named));
  AddServers(cluster);
  const absl::Status refused = Join(cluster, Script("w-1"));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(),
              HasSubstr("worker w-1: optimizer.lr: the job file says 0.05, and the script's optimizer 0.002"));
  EXPECT_TRUE(Join(cluster, Script("w-1", 0.05)).ok());
}

TEST(ControllerOptimizer, WithoutAScriptsTheJobFileHasAll) {
  FakeCluster cluster(OfScripts());
  AddServers(cluster);
  cluster.AddWorker("w-1");
  EXPECT_FALSE(cluster.servers().told()[ServerId(1)].install->has_optimizer());
  EXPECT_EQ(cluster.controller().Summary().optimizer, "sgd, lr 0.05, weight_decay 0");
  wire::RegisterWorkerRequest second = Script("w-2");
  second.mutable_tensors()->RemoveLast();
  EXPECT_THAT(Join(cluster, second).message(), HasSubstr("but that of worker w-1, the first one, no settings"));
}

TEST(ControllerOptimizer, AServerThatWouldIgnoreItEndsTheJob) {
  FakeCluster cluster(OfScripts());
  AddServers(cluster);
  cluster.restored("ps-2").set_takes_optimizer(false);
  ASSERT_TRUE(Join(cluster, Script("w-1")).ok());
  cluster.Answer();
  EXPECT_EQ(cluster.controller().state(), wire::JOB_FAILED);
  EXPECT_THAT(cluster.controller().GetStatus().reason(),
              HasSubstr("server ps-2 refused a call of the scheduler: it speaks a"));
}

TEST(ControllerOptimizer, ARestartedSchedulerKnowsIt) {
  FakeCluster before(OfScripts()), after(OfScripts());
  Start(before);
  ASSERT_TRUE(after.TakeOver(before, before.Save()).ok());
  EXPECT_EQ(after.servers().told()[ServerId(1)].install->optimizer().lr(), 0.002);
  EXPECT_THAT(Join(after, Script("w-3", 0.1)).message(), HasSubstr("gives optimizer.lr: 0.1"));
  EXPECT_TRUE(Join(after, Script("w-3")).ok());
}

checkpoint::Manifest ManifestOf(const FakeCluster& cluster) {
  checkpoint::Manifest manifest;
  manifest.set_number(1);
  manifest.set_seed(1);
  manifest.set_elements(10100);
  manifest.set_trained_elements(10100);
  *manifest.mutable_scheduler() = cluster.Save();
  return manifest;
}

TEST(ControllerOptimizer, AResumedRunTakesItsScripts) {
  FakeCluster before(OfScripts());
  Start(before);
  FakeCluster after(OfScripts());
  ASSERT_TRUE(after.controller().GoOnFrom(ManifestOf(before), "/checkpoints/one").ok());
  AddServers(after);
  EXPECT_FALSE(after.servers().told()[ServerId(1)].install) << "no script has said what the optimizer is";
  EXPECT_EQ(after.controller().Summary().optimizer, "");
  ASSERT_TRUE(Join(after, Script("w-1", 0.1)).ok());
  EXPECT_EQ(after.servers().told()[ServerId(1)].install->optimizer().lr(), 0.1);
  EXPECT_FALSE(Join(after, Script("w-2")).ok());
  EXPECT_EQ(after.Save().first_worker().optimizer().lr(), 0.1);
}

TEST(ControllerOptimizer, ASchedulerThatIsRestartedBeforeTheFirstScriptStillWaits) {
  FakeCluster before(OfScripts()), resumed(OfScripts()), after(OfScripts());
  Start(before);
  ASSERT_TRUE(resumed.controller().GoOnFrom(ManifestOf(before), "/checkpoints/one").ok());
  AddServers(resumed);
  const state::Scheduler saved = resumed.Save();
  EXPECT_TRUE(saved.optimizer_awaited());
  ASSERT_TRUE(after.TakeOver(resumed, saved).ok());
  EXPECT_FALSE(after.servers().told()[ServerId(1)].install);
  ASSERT_TRUE(Join(after, Script("w-1", 0.1)).ok());
  EXPECT_EQ(after.servers().told()[ServerId(1)].install->optimizer().lr(), 0.1);
}

}  // namespace
}  // namespace slackline::scheduler::controller_optimizer_test
