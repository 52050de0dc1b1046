// Which shards move next when a job gets servers or gives some up. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "scheduler/placement.h"

namespace slackline::scheduler {

// Shards that move together, since they come from one server and go to one.
struct ShardMove {
  ServerId from;
  ServerId to;
  std::vector<ShardId> shards;  // ascending

  friend bool operator==(const ShardMove&, const ShardMove&) = default;
};

// The next of the moves after which the servers in `leaving` have no shards, and the others hold nearly equal amounts:
// no further shard could move from the one that holds most to the one that holds least without making the second the
// larger one. Leaving ones come first. Shards that need not move stay. Nullopt when all is well.
//
// `servers`: all that may hold shards, those in `leaving` included. Nothing moves where all of them leave. `shares`: as
// PlaceShards() has them; what is nearly equal is then what each holds for its share. `frozen_from`: as there, too;
// what is frozen counts as little here.
std::optional<ShardMove> NextMove(absl::Span<const ShardPlace> places, const std::set<ServerId>& servers,
                                  const std::set<ServerId>& leaving, const std::map<ServerId, double>& shares = {},
                                  uint64_t frozen_from = 0);

}  // namespace slackline::scheduler
