// Chooses the shards that move next when a job gets servers or gives some up. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "scheduler/shards/placement.h"

namespace slackline::scheduler {

// Shards that move together, since they come from one server and go to one other.
struct ShardMove {
  ServerId from;
  ServerId to;
  std::vector<ShardId> shards;  // ascending

  friend bool operator==(const ShardMove&, const ShardMove&) = default;
};

// Returns the next of the moves after which the servers in `leaving` have no shards, and the others hold nearly equal
// amounts. Nearly equal: no further shard could move from the server that holds most to the server that holds least
// without making the second the larger one. Shards of leaving servers move first. Shards that need not move stay.
// Nullopt if nothing is to move.
//
// `servers`: all servers that may hold shards, those in `leaving` included. Nothing moves if all of them leave.
// `shares`: as for PlaceShards(); what is nearly equal is then the amount that each server holds for its share.
// `frozen_from`: as for PlaceShards(), too; frozen elements count as little here.
std::optional<ShardMove> NextMove(absl::Span<const ShardPlace> places, const std::set<ServerId>& servers,
                                  const std::set<ServerId>& leaving, const std::map<ServerId, double>& shares = {},
                                  uint64_t frozen_from = 0);

}  // namespace slackline::scheduler
