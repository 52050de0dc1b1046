#include "scheduler/shards/pairing.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace slackline::scheduler::pairing_test {
namespace {

wire::LocalAddress At(const std::string& topology, const std::string& host = "") {
  wire::LocalAddress address;
  address.set_topology(topology);
  address.set_host(host);
  return address;
}

TEST(Pairing, DistanceIsWhatCanTakeBoth) {
  EXPECT_EQ(DistanceOf(At("top.a.n1"), At("top.a.n1")), 0);
  EXPECT_EQ(DistanceOf(At("top.a.n1"), At("top.a.n2")), 1);
  EXPECT_EQ(DistanceOf(At("top.a.n1"), At("top.b.n1")), 2);
  EXPECT_EQ(DistanceOf(At("", "h1"), At("", "h1")), 0);
  EXPECT_EQ(DistanceOf(At("", "h1"), At("", "h2")), 2);
  EXPECT_EQ(DistanceOf(At(""), At("")), 2) << "nobody knows";
}

TEST(Pairing, NobodyIsChosenWhereAllHaveBackups) { EXPECT_EQ(ChooseServer(At("a.n1"), {}, {}), std::nullopt); }

TEST(Pairing, ABackupOfTheOwnMachineIsBetterThanNone) {
  EXPECT_EQ(ChooseServer(At("a.n1"), {{ServerId(1), At("a.n1")}}, {At("a.n1"), At("a.n1")}), ServerId(1));
}

// Processes of `machines` that are spread over `switches`, `each` on every machine, in a random order: the first half
// are servers. The number of pairs at most `distance` apart.
int Near(int machines, int each, int switches, bool hosts_only, int distance, std::mt19937& random) {
  std::vector<wire::LocalAddress> processes;
  for (int machine = 0; machine < machines; ++machine) {
    for (int i = 0; i < each; ++i) {
      const std::string topology = absl::StrCat("top.s", machine * switches / machines, ".n", machine);
      processes.push_back(hosts_only ? At("", topology) : At(topology, topology));
    }
  }
  std::shuffle(processes.begin(), processes.end(), random);
  const size_t servers = processes.size() / 2;
  std::map<ServerId, wire::LocalAddress> open;
  for (size_t i = 0; i < servers; ++i) open[ServerId(static_cast<uint32_t>(i + 1))] = processes[i];
  int near = 0;
  for (size_t i = servers; i < processes.size(); ++i) {
    const std::vector<wire::LocalAddress> seen(processes.begin(), processes.begin() + static_cast<ptrdiff_t>(i) + 1);
    const std::optional<ServerId> server = ChooseServer(processes[i], open, seen);
    EXPECT_TRUE(server && open.contains(*server));
    near += DistanceOf(open[*server], processes[i]) <= distance ? 1 : 0;
    open.erase(*server);
  }
  return near;
}

TEST(Pairing, NoPairIsOnOneMachineInWhateverOrderTheyCome) {
  std::mt19937 random(1);
  for (const auto& [machines, each] : std::vector<std::pair<int, int>>{
           {2, 1}, {2, 2}, {2, 3}, {3, 2}, {3, 4}, {3, 6}, {4, 1}, {4, 2}, {5, 2}, {5, 4}, {9, 2}}) {
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(Near(machines, each, 1, /*hosts_only=*/true, 0, random), 0) << machines << " x " << each;
      ASSERT_EQ(Near(machines, each, 1, /*hosts_only=*/false, 0, random), 0) << machines << " x " << each;
    }
  }
}

TEST(Pairing, NoPairIsOnOneSwitchWhereThereAreSeveral) {
  std::mt19937 random(2);
  for (const auto& [machines, each, switches] :
       std::vector<std::tuple<int, int, int>>{{4, 2, 2}, {6, 2, 3}, {6, 4, 3}, {8, 2, 2}, {8, 2, 4}, {9, 2, 3}}) {
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(Near(machines, each, switches, /*hosts_only=*/false, 1, random), 0)
          << machines << " x " << each << " on " << switches;
    }
  }
}

}  // namespace
}  // namespace slackline::scheduler::pairing_test
