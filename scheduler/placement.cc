#include "scheduler/placement.h"

#include <algorithm>

#include "common/check.h"

namespace slackline::scheduler {
namespace {

// Where shard `index` of `shards` begins, in units; without overflow for any model that fits a machine.
uint64_t Boundary(uint64_t units, uint64_t index, uint64_t shards) {
  return units / shards * index + units % shards * index / shards;
}

}  // namespace

std::vector<ShardPlace> PlaceShards(uint64_t elements, const ClusterShape& shape) {
  SLACKLINE_CHECK(elements > 0 && shape.servers > 0 && shape.shards_per_server > 0);
  const uint64_t units = elements / kShardAlignment + (elements % kShardAlignment != 0);
  const uint64_t shards = std::min<uint64_t>(uint64_t{shape.servers} * shape.shards_per_server, units);

  std::vector<uint64_t> held(shape.servers, 0);
  std::vector<uint32_t> count(shape.servers, 0);
  std::vector<ShardPlace> places;
  places.reserve(shards);
  for (uint64_t i = 0; i < shards; ++i) {
    ShardPlace place;
    place.shard = ShardId(static_cast<uint32_t>(i));
    place.begin = Boundary(units, i, shards) * kShardAlignment;
    place.end = std::min(elements, Boundary(units, i + 1, shards) * kShardAlignment);
    // The server with the least so far; neighbours thus lie on different servers, which spreads a pull's beginning.
    size_t best = shape.servers;
    for (size_t s = 0; s < shape.servers; ++s) {
      if (count[s] < shape.shards_per_server && (best == shape.servers || held[s] < held[best])) best = s;
    }
    held[best] += place.size();
    ++count[best];
    place.server = ServerId(static_cast<uint32_t>(best) + 1);
    places.push_back(place);
  }
  return places;
}

}  // namespace slackline::scheduler
