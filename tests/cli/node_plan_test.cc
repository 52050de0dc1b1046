#include "cli/slurm/node_plan.h"

#include <map>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/job/job_file.h"

namespace slackline::cli::slurm::node_plan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Node On(const std::string& name, const std::string& leaf) {
  Node node;
  node.name = name;
  node.topology = "spine." + leaf + "." + name;
  return node;
}

const std::vector<Node> kFour = {On("n1", "leaf1"), On("n2", "leaf1"), On("n3", "leaf2"), On("n4", "leaf2")};

TEST(NodePlan, EveryNodeComputesAndServersAreSpreadOverSwitchesFirst) {
  const std::vector<NodeRoles> roles = PlanNodes(kFour, {.servers = 3});
  ASSERT_THAT(roles, SizeIs(4));
  EXPECT_EQ(roles[0], (NodeRoles{"n1", true, {"ps-1"}, {"worker-n1"}}));
  EXPECT_EQ(roles[1], (NodeRoles{"n2", false, {"ps-3"}, {"worker-n2"}}));
  EXPECT_EQ(roles[2], (NodeRoles{"n3", false, {"ps-2"}, {"worker-n3"}}));
  EXPECT_EQ(roles[3], (NodeRoles{"n4", false, {}, {"worker-n4"}}));
}

TEST(NodePlan, ANodeThatComputesHasAWorkerOfEachGroup) {
  std::vector<Node> nodes = kFour;
  nodes[2].gpus = nodes[3].gpus = 4;
  const std::vector<NodeRoles> roles = PlanNodes(nodes, {.servers = 2, .groups = 2});
  EXPECT_THAT(roles[0].workers, IsEmpty());
  EXPECT_THAT(roles[2].workers, ElementsAre("worker-n3-group0", "worker-n3-group1"));
  EXPECT_THAT(roles[3].workers, ElementsAre("worker-n4-group0", "worker-n4-group1"));
}

TEST(NodePlan, ANodeThatComputesHasAllItsScripts) {
  const std::vector<NodeRoles> roles = PlanNodes(kFour, {.servers = 1, .scripts = 3});
  EXPECT_THAT(roles[0].workers, ElementsAre("worker-n1-0", "worker-n1-1", "worker-n1-2"));
  EXPECT_THAT(roles[3].workers, ElementsAre("worker-n4-0", "worker-n4-1", "worker-n4-2"));
}

TEST(NodePlan, MoreServersThanNodesGoRound) {
  const std::vector<NodeRoles> roles = PlanNodes(kFour, {.servers = 9});
  std::map<std::string, size_t> held;
  for (const NodeRoles& node : roles) held[node.node] = node.servers.size();
  EXPECT_EQ(held, (std::map<std::string, size_t>{{"n1", 3}, {"n2", 2}, {"n3", 2}, {"n4", 2}}));
  EXPECT_THAT(roles[0].servers, ElementsAre("ps-1", "ps-5", "ps-9"));
}

TEST(NodePlan, NodesWithGpusComputeAndTheOthersHoldWeights) {
  std::vector<Node> nodes = kFour;
  nodes[2].gpus = nodes[3].gpus = 4;
  const std::vector<NodeRoles> roles = PlanNodes(nodes, {.servers = 2});
  EXPECT_EQ(roles[0], (NodeRoles{"n1", true, {"ps-1"}, {}}));
  EXPECT_EQ(roles[1], (NodeRoles{"n2", false, {"ps-2"}, {}}));
  EXPECT_EQ(roles[2], (NodeRoles{"n3", false, {}, {"worker-n3"}}));
  EXPECT_EQ(roles[3], (NodeRoles{"n4", false, {}, {"worker-n4"}}));
}

TEST(NodePlan, OfSeveralComponentsTheFirstHoldsWeights) {
  std::vector<Node> nodes = kFour;
  for (size_t index = 1; index < 4; ++index) nodes[index].component = 1;
  const std::vector<NodeRoles> roles = PlanNodes(nodes, {.servers = 2});
  EXPECT_EQ(roles[0], (NodeRoles{"n1", true, {"ps-1", "ps-2"}, {}}));
  EXPECT_THAT(roles[3].workers, ElementsAre("worker-n4"));
  // Whatever the components are, nodes with GPUs compute.
  nodes[0].gpus = 1;
  EXPECT_THAT(PlanNodes(nodes, {.servers = 1})[0].workers, ElementsAre("worker-n1"));
  EXPECT_THAT(PlanNodes(nodes, {.servers = 1})[0].servers, IsEmpty());
}

TEST(NodePlan, OneNodeHasAll) {
  const std::vector<Node> one = {Node{.name = "alone", .topology = "", .cpus = 2, .gpus = 1, .component = 0}};
  EXPECT_EQ(SwitchOf(one[0]), "");
  EXPECT_THAT(PlanNodes(one, {.servers = 2}),
              ElementsAre(NodeRoles{"alone", true, {"ps-1", "ps-2"}, {"worker-alone"}}));
}

TEST(NodePlan, WorkersTakeTheGpusOfTheAllocationUnlessTheJobSaysOtherwise) {
  const auto devices_of = [](const std::string& yaml) {
    return DevicesOfAllocation(ParseJob(yaml, "job.yaml").value());
  };
  EXPECT_TRUE(devices_of("name: job").value().gpus);
  for (const char* const said :
       {"worker: {devices: [cuda:0]}", "worker: {groups: [cpu, cpu]}", "model: {kind: external}"}) {
    EXPECT_EQ(devices_of(said), std::nullopt) << said;
  }
  for (const char* const said :
       {"worker: {devices: cpu}", "worker: {stages: 2, devices: [cpu, cpu]}\nmodel: {kind: vit_tiny}"}) {
    EXPECT_THAT(devices_of(said).value().note, HasSubstr("workers compute on CPUs, as worker.devices says")) << said;
  }
  EXPECT_TRUE(
      devices_of("training: {self_supervised: {method: contrastive}}\ndata: {augment: {flip: both}}").value().gpus);
}

TEST(NodePlan, ServerOfALostNodeGoesWhereFewestAre) {
  std::vector<NodeRoles> roles = PlanNodes(kFour, {.servers = 4});
  roles[2].servers.clear();
  roles[1].servers.push_back("ps-9");
  roles[0].servers.push_back("ps-8");
  EXPECT_EQ(NewPlaceFor(kFour, roles, {"n3"}), "n4");
  const std::vector<std::string> all = {"n1", "n2", "n3", "n4"};
  EXPECT_EQ(NewPlaceFor(kFour, roles, all), "");
}

TEST(NodePlan, ServerNeverGoesToANodeThatOnlyComputes) {
  std::vector<Node> nodes = kFour;
  nodes[2].gpus = nodes[3].gpus = 4;
  const std::vector<NodeRoles> roles = PlanNodes(nodes, {.servers = 4});
  EXPECT_EQ(NewPlaceFor(nodes, roles, {"n1"}), "n2");
  const std::vector<std::string> both = {"n1", "n2"};
  EXPECT_EQ(NewPlaceFor(nodes, roles, both), "");
}

}  // namespace
}  // namespace slackline::cli::slurm::node_plan_test
