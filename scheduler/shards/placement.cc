#include "scheduler/shards/placement.h"

#include <algorithm>

#include "common/base/check.h"
#include "scheduler/shards/link_shares.h"

namespace slackline::scheduler {
namespace {

// Where shard `index` of `shards` begins, in units; without overflow for any model that fits a machine.
uint64_t Boundary(uint64_t units, uint64_t index, uint64_t shards) {
  return units / shards * index + units % shards * index / shards;
}

// Of an element that is not frozen; of one that is, 1.
constexpr uint64_t kPushedCost = 8;

// A model in units of kShardAlignment elements, and what they cost where some are frozen.
class Costs {
 public:
  Costs(uint64_t elements, uint64_t frozen_from)
      : units_(UnitsOf(elements)), pushed_(frozen_from == 0 ? units_ : UnitsOf(std::min(frozen_from, elements))) {}

  uint64_t units() const { return units_; }
  // Of the first so many units.
  uint64_t Of(uint64_t units) const {
    return kPushedCost * std::min(units, pushed_) + units - std::min(units, pushed_);
  }
  // Where shard `index` of `shards` begins, in units. No shard is empty.
  uint64_t Begin(uint64_t index, uint64_t shards) const {
    const uint64_t cost = Boundary(Of(units_), index, shards), pushed = kPushedCost * pushed_;
    const uint64_t unit = cost <= pushed ? cost / kPushedCost : pushed_ + (cost - pushed);
    return std::clamp(unit, index, units_ - (shards - index));
  }

 private:
  static uint64_t UnitsOf(uint64_t elements) { return elements / kShardAlignment + (elements % kShardAlignment != 0); }

  const uint64_t units_;
  const uint64_t pushed_;
};

// Deals shards out, one after the other.
class Dealer {
 public:
  Dealer(const ClusterShape& shape, const std::map<ServerId, double>& shares, uint64_t shards)
      : most_(shares.empty() ? shape.shards_per_server : shards), held_(shape.servers), count_(shape.servers) {
    for (uint32_t i = 1; i <= shape.servers; ++i) shares_.push_back(ShareOf(shares, ServerId(i)));
  }

  // The server that has least for its share then; neighbours thus lie on different servers, which spreads a pull's
  // beginning. `left`: shards that come after this one.
  ServerId Deal(uint64_t size, uint64_t left) {
    const auto without = static_cast<uint64_t>(std::count(count_.begin(), count_.end(), 0u));
    size_t best = held_.size();
    for (size_t i = 0; i < held_.size(); ++i) {
      if (count_[i] >= most_ || (left < without && count_[i] > 0)) continue;
      if (best == held_.size() || Load(i, size) < Load(best, size)) best = i;
    }
    held_[best] += size;
    ++count_[best];
    return ServerId(static_cast<uint32_t>(best) + 1);
  }

 private:
  double Load(size_t server, uint64_t size) const {
    return static_cast<double>(held_[server] + size) / shares_[server];
  }

  const uint64_t most_;  // shards of a server
  std::vector<double> shares_;
  std::vector<uint64_t> held_;
  std::vector<uint64_t> count_;
};

}  // namespace

std::vector<ShardPlace> PlaceShards(uint64_t elements, const ClusterShape& shape,
                                    const std::map<ServerId, double>& shares, uint64_t frozen_from) {
  SLACKLINE_CHECK(elements > 0 && shape.servers > 0 && shape.shards_per_server > 0);
  const Costs costs(elements, frozen_from);
  const uint64_t shards = std::min<uint64_t>(uint64_t{shape.servers} * shape.shards_per_server, costs.units());

  Dealer dealer(shape, shares, shards);
  std::vector<ShardPlace> places;
  places.reserve(shards);
  for (uint64_t i = 0; i < shards; ++i) {
    ShardPlace place;
    place.shard = ShardId(static_cast<uint32_t>(i));
    const uint64_t begin = costs.Begin(i, shards), end = costs.Begin(i + 1, shards);
    place.begin = begin * kShardAlignment;
    place.end = std::min(elements, end * kShardAlignment);
    place.server = dealer.Deal(costs.Of(end) - costs.Of(begin), shards - i - 1);
    places.push_back(place);
  }
  return places;
}

uint64_t CostOf(const ShardPlace& place, uint64_t frozen_from) {
  const uint64_t end = frozen_from == 0 ? place.end : std::clamp(frozen_from, place.begin, place.end);
  return kPushedCost * (end - place.begin) + (place.end - end);
}

}  // namespace slackline::scheduler
