#include "scheduler/shards/placement.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>
#include "scheduler/shards/link_shares.h"

namespace slackline::scheduler::placement_test {
namespace {

// What must hold for every model and cluster.
void CheckPlacement(uint64_t elements, const ClusterShape& shape) {
  SCOPED_TRACE(testing::Message() << elements << " elements, " << shape.servers << " x " << shape.shards_per_server);
  const std::vector<ShardPlace> places = PlaceShards(elements, shape);
  const uint64_t units = (elements + kShardAlignment - 1) / kShardAlignment;
  ASSERT_EQ(places.size(), std::min<uint64_t>(uint64_t{shape.servers} * shape.shards_per_server, units));

  uint64_t position = 0, smallest = elements, largest = 0;
  std::map<ServerId, uint64_t> held;
  for (uint32_t s = 1; s <= shape.servers; ++s) held[ServerId(s)] = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(places[i].shard, ShardId(static_cast<uint32_t>(i)));
    EXPECT_EQ(places[i].begin, position);
    EXPECT_EQ(places[i].begin % kShardAlignment, 0u);
    ASSERT_LT(places[i].begin, places[i].end);
    position = places[i].end;
    smallest = std::min(smallest, places[i].size());
    largest = std::max(largest, places[i].size());
    ASSERT_TRUE(held.contains(places[i].server));
    held[places[i].server] += places[i].size();
  }
  EXPECT_EQ(position, elements);
  EXPECT_LT(largest - smallest, 2 * kShardAlignment);
  const auto by_size = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [least, most] = std::minmax_element(held.begin(), held.end(), by_size);
  // Servers differ by one shard only where shards do not divide evenly among them.
  const uint64_t uneven = places.size() % shape.servers == 0 ? 0 : largest;
  EXPECT_LE(most->second - least->second, uneven + 2 * kShardAlignment * shape.shards_per_server);
}

TEST(Placement, FrozenElementsCountForAnEighth) {
  // 80 units that are trained cost as much as 640 that are frozen.
  const std::vector<ShardPlace> places = PlaceShards(720 * kShardAlignment, {2, 2}, {}, 80 * kShardAlignment);
  ASSERT_EQ(places.size(), 4u);
  std::vector<uint64_t> units;
  for (const ShardPlace& place : places) units.push_back(place.size() / kShardAlignment);
  EXPECT_EQ(units, (std::vector<uint64_t>{40, 40, 320, 320}));
  // One of each kind on either server.
  EXPECT_NE(places[0].server, places[1].server);
  EXPECT_NE(places[2].server, places[3].server);
  // Hardly anything is trained: no shard is empty, and all is somewhere.
  uint64_t next = 0;
  for (const ShardPlace& place : PlaceShards(1000, {3, 8}, {}, 5)) {
    EXPECT_EQ(place.begin, next);
    EXPECT_GT(place.end, place.begin);
    next = place.end;
  }
  EXPECT_EQ(next, 1000u);
}

TEST(Placement, CoversTheModelEvenlyForAllShapes) {
  for (uint64_t elements : {1u, 15u, 16u, 17u, 100u, 1000u, 4096u, 152650u, 1199882u, 11173962u}) {
    for (uint32_t servers : {1u, 2u, 3u, 5u, 16u}) {
      for (uint32_t shards : {1u, 2u, 8u, 13u}) CheckPlacement(elements, {servers, shards});
    }
  }
}

std::map<ServerId, size_t> CountShards(const std::vector<ShardPlace>& places) {
  std::map<ServerId, size_t> counts;
  for (const ShardPlace& place : places) ++counts[place.server];
  return counts;
}

TEST(Placement, FollowsTheSharesOfTheServers) {
  const std::map<ServerId, double> shares = {{ServerId(1), 100'000}, {ServerId(2), 25'000}, {ServerId(3), 25'000}};
  const std::map<ServerId, size_t> expected = {{ServerId(1), 16}, {ServerId(2), 4}, {ServerId(3), 4}};
  EXPECT_EQ(CountShards(PlaceShards(1 << 20, {3, 8}, shares)), expected);
  // Neighbours lie apart as far as they can.
  EXPECT_NE(PlaceShards(1 << 20, {3, 8}, shares)[1].server, ServerId(2));
}

TEST(Placement, WhoHasTheSlowestLinkStillGetsAShard) {
  const std::map<ServerId, double> shares = {{ServerId(1), 1}, {ServerId(2), 100'000}};
  const std::map<ServerId, size_t> expected = {{ServerId(1), 1}, {ServerId(2), 15}};
  EXPECT_EQ(CountShards(PlaceShards(1 << 20, {2, 8}, shares)), expected);
}

TEST(LinkShares, ServersOfOneMachineDivideItsLink) {
  const std::map<ServerId, double> expected = {{ServerId(1), 50'000}, {ServerId(2), 50'000}, {ServerId(3), 25'000}};
  EXPECT_EQ(LinkShares({{ServerId(1), {"a", 100'000}}, {ServerId(2), {"a", 100'000}}, {ServerId(3), {"b", 25'000}}}),
            expected);
}

TEST(LinkShares, WhereOneIsNotKnownAllAreAlike) {
  EXPECT_TRUE(LinkShares({{ServerId(1), {"a", 100'000}}, {ServerId(2), {"b", 0}}}).empty());
  EXPECT_TRUE(LinkShares({{ServerId(1), {"a", 100'000}}, {ServerId(2), {"", 100'000}}}).empty());
}

TEST(Placement, TinyModelGetsOneShard) {
  const std::vector<ShardPlace> places = PlaceShards(7, {2, 8});
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].begin, 0u);
  EXPECT_EQ(places[0].end, 7u);
}

TEST(Placement, NeighboursLieOnDifferentServers) {
  const std::vector<ShardPlace> places = PlaceShards(1 << 20, {2, 8});
  for (size_t i = 1; i < places.size(); ++i) EXPECT_NE(places[i].server, places[i - 1].server);
}

TEST(Placement, LargestModelDoesNotOverflow) { CheckPlacement(uint64_t{1} << 42, {4096, 8}); }

}  // namespace
}  // namespace slackline::scheduler::placement_test
