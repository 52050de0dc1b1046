#include "scheduler/shards/rebalance.h"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace slackline::scheduler::rebalance_test {
namespace {

std::set<ServerId> Servers(std::initializer_list<uint32_t> numbers) {
  std::set<ServerId> servers;
  for (const uint32_t number : numbers) servers.insert(ServerId(number));
  return servers;
}

std::map<ServerId, uint64_t> Held(const std::vector<ShardPlace>& places, const std::set<ServerId>& servers) {
  std::map<ServerId, uint64_t> held;
  for (const ServerId server : servers) held[server] = 0;
  for (const ShardPlace& place : places) held[place.server] += place.size();
  return held;
}

// Carries out all moves; fails the test where one makes no sense or there is no end of them.
size_t MoveAll(std::vector<ShardPlace>& places, const std::set<ServerId>& servers, const std::set<ServerId>& leaving) {
  size_t moved = 0;
  for (size_t moves = 0; const std::optional<ShardMove> move = NextMove(places, servers, leaving); ++moves) {
    if (moves > 2 * servers.size() * servers.size()) {
      ADD_FAILURE() << "no end";
      break;
    }
    EXPECT_NE(move->from, move->to);
    EXPECT_FALSE(move->shards.empty());
    EXPECT_TRUE(servers.contains(move->to) && !leaving.contains(move->to));
    for (const ShardId shard : move->shards) {
      EXPECT_EQ(places[shard.value()].server, move->from);
      places[shard.value()].server = move->to;
    }
    moved += move->shards.size();
  }
  return moved;
}

TEST(Rebalance, NothingMovesWhereAllIsWell) {
  const std::vector<ShardPlace> places = PlaceShards(100000, {3, 8});
  EXPECT_EQ(NextMove(places, Servers({1, 2, 3}), {}), std::nullopt);
}

TEST(Rebalance, SharesSayHowMuchIsEnough) {
  const std::map<ServerId, double> shares = {{ServerId(1), 100}, {ServerId(2), 25}};
  const std::vector<ShardPlace> places = PlaceShards(1 << 20, {2, 10}, shares);
  EXPECT_EQ(NextMove(places, Servers({1, 2}), {}, shares), std::nullopt);
  EXPECT_NE(NextMove(places, Servers({1, 2}), {}), std::nullopt);
  // As fast as the first one: all have 20 shards to share, 9 of 25 parts each, 2 for the slow one.
  std::vector<ShardPlace> more = places;
  const std::map<ServerId, double> three = {{ServerId(1), 100}, {ServerId(2), 25}, {ServerId(3), 100}};
  while (const std::optional<ShardMove> move = NextMove(more, Servers({1, 2, 3}), {}, three)) {
    for (const ShardId shard : move->shards) more[shard.value()].server = move->to;
  }
  const uint64_t shard = (1 << 20) / 20;
  const std::map<ServerId, uint64_t> held = Held(more, Servers({1, 2, 3}));
  EXPECT_NEAR(held.at(ServerId(1)), 9 * shard, shard);
  EXPECT_NEAR(held.at(ServerId(2)), 2 * shard, shard);
  EXPECT_NEAR(held.at(ServerId(3)), 9 * shard, shard);
}

TEST(Rebalance, WhatIsFrozenCountsAsLittleAsWhereShardsWereCut) {
  constexpr uint64_t kElements = 1 << 20, kFrozenFrom = 1 << 17;
  std::vector<ShardPlace> places = PlaceShards(kElements, {2, 12}, {}, kFrozenFrom);
  EXPECT_EQ(NextMove(places, Servers({1, 2}), {}, {}, kFrozenFrom), std::nullopt);
  while (const std::optional<ShardMove> move = NextMove(places, Servers({1, 2, 3}), {}, {}, kFrozenFrom)) {
    for (const ShardId shard : move->shards) places[shard.value()].server = move->to;
  }
  std::map<ServerId, uint64_t> costs;
  for (const ShardPlace& place : places) costs[place.server] += CostOf(place, kFrozenFrom);
  const double third = (8.0 * kFrozenFrom + (kElements - kFrozenFrom)) / 3;
  for (uint32_t server = 1; server <= 3; ++server) EXPECT_NEAR(costs[ServerId(server)], third, third / 20);
}

TEST(Rebalance, ANewServerGetsItsShare) {
  std::vector<ShardPlace> places = PlaceShards(120000, {2, 6});
  // Four of twelve, and no shard moves between the other two.
  EXPECT_EQ(MoveAll(places, Servers({1, 2, 3}), {}), 4u);
  for (const auto& [server, held] : Held(places, Servers({1, 2, 3}))) EXPECT_NEAR(held, 40000, 100);
}

TEST(Rebalance, OneThatLeavesGivesAllAway) {
  std::vector<ShardPlace> places = PlaceShards(120000, {3, 4});
  const std::optional<ShardMove> first = NextMove(places, Servers({1, 2, 3}), Servers({2}));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->from, ServerId(2));
  EXPECT_EQ(first->shards.size(), 2u) << "the other two share them";
  EXPECT_EQ(MoveAll(places, Servers({1, 2, 3}), Servers({2})), 4u);
  EXPECT_EQ(Held(places, Servers({1, 2, 3}))[ServerId(2)], 0u);
}

TEST(Rebalance, WhereAllLeaveNothingMoves) {
  const std::vector<ShardPlace> places = PlaceShards(100000, {2, 2});
  EXPECT_EQ(NextMove(places, Servers({1, 2}), Servers({1, 2})), std::nullopt);
}

TEST(Rebalance, AnyJobComesToRest) {
  std::mt19937 random(7);
  const auto pick = [&](uint32_t from, uint32_t to) {
    return std::uniform_int_distribution<uint32_t>(from, to)(random);
  };
  for (int round = 0; round < 200; ++round) {
    const uint32_t before = pick(1, 8), each = pick(1, 8);
    std::vector<ShardPlace> places = PlaceShards(pick(1, 100000), {before, each});
    std::set<ServerId> servers, leaving;
    for (uint32_t server = 1; server <= before + pick(0, 4); ++server) servers.insert(ServerId(server));
    for (const ServerId server : servers) {
      if (pick(0, 3) == 0 && leaving.size() + 1 < servers.size()) leaving.insert(server);
    }
    MoveAll(places, servers, leaving);
    uint64_t largest = 0;
    for (const ShardPlace& place : places) largest = std::max(largest, place.size());
    uint64_t least = UINT64_MAX, most = 0;
    for (const auto& [server, held] : Held(places, servers)) {
      if (leaving.contains(server)) {
        EXPECT_EQ(held, 0u);
        continue;
      }
      least = std::min(least, held);
      most = std::max(most, held);
    }
    EXPECT_LE(most - least, largest) << "round " << round;
  }
}

}  // namespace
}  // namespace slackline::scheduler::rebalance_test
