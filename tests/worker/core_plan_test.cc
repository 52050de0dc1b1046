// Cores of the workers of a machine, and the threads that are bound to them.
#include "worker/machine/core_plan.h"

#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "common/process/thread_cores.h"
#include "tests/images/test_data.h"
#include "worker/machine/numa_nodes.h"

namespace slackline::worker::core_plan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CoreShare Share(const std::vector<std::string>& cores, uint32_t devices = 1, bool gpus = false) {
  const auto wish = ParseCores(cores);
  EXPECT_TRUE(wish.ok()) << wish.status();
  return {.key = "worker.cores", .wish = wish.ok() ? *wish : CoreWish{}, .devices = devices, .gpus = gpus};
}

std::vector<uint32_t> Machine(uint32_t cores) {
  std::vector<uint32_t> all(cores);
  for (uint32_t i = 0; i < cores; ++i) all[i] = i;
  return all;
}

std::vector<std::vector<uint32_t>> Computing(uint32_t cores, const std::vector<CoreShare>& workers) {
  std::vector<std::vector<uint32_t>> all;
  for (size_t i = 0; i < workers.size(); ++i) {
    const auto plan = PlanCores(Machine(cores), workers, i);
    EXPECT_TRUE(plan.ok()) << plan.status();
    all.push_back(plan.ok() ? plan->compute : std::vector<uint32_t>{});
  }
  return all;
}

TEST(ParseCoresTest, ANumberIsACountAndARangeIsAList) {
  EXPECT_EQ(ParseCores({})->kind, CoreWish::Kind::kNone);
  EXPECT_EQ(ParseCores({"auto"})->kind, CoreWish::Kind::kAuto);
  EXPECT_EQ(*ParseCores({"4"}), (CoreWish{.kind = CoreWish::Kind::kCount, .count = 4}));
  EXPECT_THAT(ParseCores({"8", "0-2"})->cores, ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(ParseCores({"4-4"})->cores, ElementsAre(4));
  for (const std::vector<std::string>& bad : std::vector<std::vector<std::string>>{
           {"0"}, {"4097"}, {"3-1"}, {"auto", "1"}, {"-1"}, {"1-"}, {"a"}, {""}, {"0-3", "3"}, {"1", "4096"}, {"1 "}}) {
    EXPECT_THAT(ParseCores(bad).status().message(), HasSubstr("allowed is auto, a number of cores")) << bad.front();
  }
  EXPECT_THAT(ParseCores({"0-3", "3"}).status().message(), HasSubstr("found core 3 twice"));
  EXPECT_EQ(CoresText({0, 1, 2, 8}), "0-2, 8");
  EXPECT_EQ(CoresText({}), "none");
}

TEST(PlanCoresTest, NobodyIsBoundWhereNobodySaysSo) {
  const auto plan = PlanCores(Machine(8), {Share({}), Share({})}, 1);
  EXPECT_THAT(plan->compute, IsEmpty());
  EXPECT_THAT(plan->others, IsEmpty());
}

TEST(PlanCoresTest, CountsAreDisjointAndTheRestIsForOthers) {
  const std::vector<CoreShare> workers = {Share({"3"}), Share({"2"})};
  EXPECT_THAT(Computing(8, workers), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4)));
  EXPECT_THAT(PlanCores(Machine(8), workers, 0)->others, ElementsAre(5, 6, 7));
  EXPECT_THAT(PlanCores(Machine(8), workers, 1)->others, ElementsAre(5, 6, 7));
}

TEST(PlanCoresTest, AutoKeepsAnEighthForOthersAndDealsOutTheRestByDevices) {
  EXPECT_THAT(Computing(8, {Share({"auto"})}), ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5, 6)));
  EXPECT_THAT(Computing(2, {Share({"auto"})}), ElementsAre(ElementsAre(0)));
  // A group of two GPUs and one of a CPU with 16 cores.
  const auto hybrid = Computing(16, {Share({"auto"}, 2, /*gpus=*/true), Share({"auto"})});
  EXPECT_THAT(hybrid[0], ElementsAre(0, 1));
  EXPECT_EQ(hybrid[1].size(), 12u);
  // Two devices get twice as many as one.
  const auto cpus = Computing(8, {Share({"auto"}, 2), Share({"auto"}, 1)});
  EXPECT_THAT(cpus, ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5)));
}

TEST(PlanCoresTest, AutoBindsNothingWhereThereAreTooFew) {
  const auto plan = PlanCores(Machine(2), {Share({"auto"}), Share({"auto"})}, 0);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->compute, IsEmpty());
  EXPECT_THAT(plan->note, HasSubstr("auto binds nothing here, where 2 of 2 cores are left"));
}

TEST(PlanCoresTest, ListsComeFirst) {
  EXPECT_THAT(Computing(8, {Share({"2"}), Share({"0", "5-6"})}), ElementsAre(ElementsAre(1, 2), ElementsAre(0, 5, 6)));
}

TEST(PlanCoresTest, WhatIsNotThereIsRefused) {
  EXPECT_EQ(PlanCores(Machine(4), {Share({"2-5"})}, 0).status().message(),
            "worker.cores: found core 4; allowed is those that this process may use: 0-3");
  EXPECT_THAT(PlanCores(Machine(4), {Share({"0-1"}), Share({"1-2"})}, 0).status().message(),
              HasSubstr("found core 1 for two workers of this machine; allowed is each core for one of them"));
  EXPECT_EQ(PlanCores(Machine(4), {Share({"3"}), Share({"3"})}, 0).status().message(),
            "worker.cores: found 3 cores for worker 2 of 2 on this machine; allowed is at most what is left of its 4, "
            "which is 1");
}

TEST(PlanCoresTest, WhereComputingTakesAllOthersShareThem) {
  const auto plan = PlanCores(Machine(2), {Share({"2"})}, 0);
  EXPECT_THAT(plan->compute, ElementsAre(0, 1));
  EXPECT_THAT(plan->others, ElementsAre(0, 1));
  EXPECT_THAT(plan->note, HasSubstr("leaves none of 2 cores to the exchange"));
}

// Two nodes of four cores, as machines number them that count hardware threads last.
const std::vector<std::vector<uint32_t>> kTwoNodes = {{0, 1, 4, 5}, {2, 3, 6, 7}};

CoreShare Gpus(const std::vector<size_t>& near, const std::vector<std::string>& cores = {"auto"}) {
  CoreShare share = Share(cores, static_cast<uint32_t>(near.size()), /*gpus=*/true);
  share.near = near;
  return share;
}

TEST(PlanCoresTest, GpusGetCoresOfTheirNumaNodes) {
  const auto plan = PlanCores(Machine(8), {Gpus({1, 1})}, 0, kTwoNodes);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->compute, ElementsAre(2, 3));
  EXPECT_EQ(plan->node, 1u);
  EXPECT_THAT(plan->others, ElementsAre(0, 1, 4, 5, 6, 7));
  const auto across = PlanCores(Machine(8), {Gpus({1, 0})}, 0, kTwoNodes);
  EXPECT_THAT(across->compute, ElementsAre(0, 2));
  EXPECT_EQ(across->node, std::nullopt);
  // More than its node has.
  EXPECT_THAT(PlanCores(Machine(8), {Gpus({1}, {"5"})}, 0, kTwoNodes)->compute, ElementsAre(0, 2, 3, 6, 7));
}

TEST(PlanCoresTest, GroupsOfAMachineAreEachNearTheirGpusAndTheCpuGroupIsOnOneNode) {
  const std::vector<CoreShare> workers = {Gpus({1}), Gpus({0}), Share({"3"})};
  const auto first = PlanCores(Machine(8), workers, 0, kTwoNodes),
             second = PlanCores(Machine(8), workers, 1, kTwoNodes),
             third = PlanCores(Machine(8), workers, 2, kTwoNodes);
  // Counts come before auto: the three of the CPU fill the first node that is as good as the other.
  EXPECT_THAT(third->compute, ElementsAre(0, 1, 4));
  EXPECT_EQ(third->node, 0u);
  EXPECT_THAT(first->compute, ElementsAre(2));
  EXPECT_THAT(second->compute, ElementsAre(5));
  EXPECT_EQ(second->node, 0u);
}

TEST(PlanCoresTest, CountsFillTheFullestNodeThatHasRoom) {
  const std::vector<CoreShare> workers = {Share({"3"}), Share({"2"}), Share({"1"})};
  std::vector<std::vector<uint32_t>> compute;
  for (size_t i = 0; i < 3; ++i) compute.push_back(PlanCores(Machine(8), workers, i, kTwoNodes)->compute);
  EXPECT_THAT(compute, ElementsAre(ElementsAre(0, 1, 4), ElementsAre(2, 3), ElementsAre(5)));
  EXPECT_EQ(PlanCores(Machine(8), {Share({"7"})}, 0, kTwoNodes)->node, std::nullopt);
  EXPECT_THAT(PlanCores(Machine(8), {Share({"7"})}, 0, kTwoNodes)->compute, ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

TEST(PlanCoresTest, OneNodeChangesNothing) {
  const auto plan = PlanCores(Machine(8), {Share({"3"}), Share({"auto"})}, 0, {Machine(8)});
  EXPECT_THAT(plan->compute, ElementsAre(0, 1, 2));
  EXPECT_EQ(plan->node, std::nullopt);
}

class NumaNodesTest : public ::testing::Test {
 protected:
  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text << '\n';
  }
  const TemporaryFolder folder_;
};

TEST_F(NumaNodesTest, NodesWithCoresAreReadAndGpusFound) {
  Put("devices/system/node/node10/cpulist", "8");
  Put("devices/system/node/node1/cpulist", "4-5,7");
  Put("devices/system/node/node2/cpulist", "");  // memory alone
  Put("devices/system/node/possible", "0-10");
  Put("bus/pci/devices/0000:3b:00.0/numa_node", "10");
  Put("bus/pci/devices/0000:5e:00.0/numa_node", "-1");
  Put("bus/pci/devices/0000:6f:00.0/numa_node", "2");
  const std::vector<NumaNode> nodes = ReadNumaNodes(folder_.path());
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].number, 1u);
  EXPECT_THAT(nodes[0].cores, ElementsAre(4, 5, 7));
  EXPECT_THAT(nodes[1].cores, ElementsAre(8));
  EXPECT_THAT(NodesOfGpus(folder_.path(), {"0000:3B:00.0", "0000:5E:00.0", "0000:6F:00.0", "none"}, nodes),
              ElementsAre(std::optional<size_t>(1), std::nullopt, std::nullopt, std::nullopt));
}

TEST_F(NumaNodesTest, ASystemThatDoesNotSayHasNone) {
  EXPECT_THAT(ReadNumaNodes(folder_ / "nowhere"), IsEmpty());
  Put("devices/system/node/node0/cpulist", "0-x");
  EXPECT_THAT(ReadNumaNodes(folder_.path()), IsEmpty());
}

TEST_F(NumaNodesTest, MemoryOfANodeIsPreferredOrTheSystemSaysWhyNot) {
  std::thread([] {
    // Containers may forbid it.
    const absl::Status here = PreferMemoryOf(0);
    EXPECT_TRUE(here.ok() || absl::IsFailedPrecondition(here)) << here;
    const absl::Status nowhere = PreferMemoryOf(4095);
    EXPECT_EQ(nowhere.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(nowhere.message(), HasSubstr("NUMA node 4095"));
    EXPECT_EQ(PreferMemoryOf(5000).code(), absl::StatusCode::kFailedPrecondition);
  }).join();
}

TEST(ThreadCoresTest, AThreadIsBoundAndThoseThatItMakesToo) {
  const std::vector<uint32_t> before = ThreadCores();
  ASSERT_FALSE(before.empty());
  std::vector<uint32_t> bound, inherited;
  std::thread one([&] {
    EXPECT_TRUE(BindThread({before.back()}).ok());
    bound = ThreadCores();
    std::thread([&] { inherited = ThreadCores(); }).join();
  });
  one.join();
  EXPECT_THAT(bound, ElementsAre(before.back()));
  EXPECT_EQ(inherited, bound);
  EXPECT_EQ(ThreadCores(), before);
  EXPECT_TRUE(BindThread({}).ok());
  EXPECT_EQ(BindThread({8191}).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace slackline::worker::core_plan_test
