// Places the model: decides which part each shard holds, and which server holds the shard. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/ids.h"

namespace slackline::scheduler {

// Shards begin at multiples of this many elements, so that vectorised kernels meet no odd beginnings: one cache
// line of float32.
inline constexpr uint64_t kShardAlignment = 16;

// Elements [begin, end) of the model's flat parameter vector.
struct ShardPlace {
  ShardId shard;
  ServerId server;
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t size() const { return end - begin; }
};

struct ClusterShape {
  uint32_t servers = 1;
  uint32_t shards_per_server = 1;
};

// Cuts `elements` into servers x shards_per_server contiguous shards of nearly equal size, numbered in the order of the
// elements, and deals them out so that the servers hold nearly equal amounts. A model too small for so many gets fewer
// shards, never an empty one; a server may then have none. Servers are numbered from 1.
//
// `shares`: shares of all servers, in the form of LinkShares(). Amounts are then in proportion to the shares, as far as
// whole shards allow, and each server has at least one shard if there are enough.
//
// `frozen_from`: elements from here on are frozen, 0 for none. They cost memory and hardly any work: a frozen element
// counts for an eighth of another where shards are cut and dealt out.
//
// Requires: elements, servers and shards_per_server are at least 1; shares are above 0.
std::vector<ShardPlace> PlaceShards(uint64_t elements, const ClusterShape& shape,
                                    const std::map<ServerId, double>& shares = {}, uint64_t frozen_from = 0);

// Returns the cost of a shard by the same measure, in eighths of elements.
uint64_t CostOf(const ShardPlace& place, uint64_t frozen_from);

}  // namespace slackline::scheduler
