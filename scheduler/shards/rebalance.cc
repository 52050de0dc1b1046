#include "scheduler/shards/rebalance.h"

#include <algorithm>

#include "scheduler/shards/link_shares.h"

namespace slackline::scheduler {
namespace {

// One shard after the other, as if all moves were made; the first pair of servers is the next move.
class Planner {
 public:
  Planner(absl::Span<const ShardPlace> places, const std::set<ServerId>& servers, const std::set<ServerId>& leaving,
          const std::map<ServerId, double>& shares, uint64_t frozen_from)
      : places_(places.begin(), places.end()), leaving_(leaving), shares_(shares), frozen_from_(frozen_from) {
    for (const ServerId server : servers) {
      if (!leaving.contains(server)) held_[server] = 0;
    }
    for (const ShardPlace& place : places_) {
      if (const auto held = held_.find(place.server); held != held_.end()) held->second += Cost(place);
    }
  }

  std::optional<ShardMove> Plan() {
    if (held_.empty()) return std::nullopt;
    for (ShardPlace& place : places_) {
      if (!leaving_.contains(place.server)) continue;
      if (move_ && place.server != move_->from) continue;
      Note(place, Least()->first);
    }
    while (!move_ || !leaving_.contains(move_->from)) {
      if (!Level()) break;
    }
    return move_;
  }

 private:
  using Held = std::map<ServerId, uint64_t>;

  uint64_t Cost(const ShardPlace& place) const { return CostOf(place, frozen_from_); }
  double Load(ServerId server, uint64_t held) const { return static_cast<double>(held) / ShareOf(shares_, server); }
  bool Lighter(const Held::value_type& a, const Held::value_type& b) const {
    return Load(a.first, a.second) < Load(b.first, b.second);
  }
  Held::iterator Least() {
    return std::min_element(held_.begin(), held_.end(), [this](const auto& a, const auto& b) { return Lighter(a, b); });
  }

  // Moves one shard from the fullest server to the emptiest. False when that would gain nothing.
  bool Level() {
    const auto least = Least();
    const auto most =
        std::max_element(held_.begin(), held_.end(), [this](const auto& a, const auto& b) { return Lighter(a, b); });
    const double load = Load(most->first, most->second);
    ShardPlace* best = nullptr;
    for (ShardPlace& place : places_) {
      if (place.server != most->first || Load(least->first, least->second + Cost(place)) >= load) continue;
      if (best == nullptr || Cost(place) > Cost(*best)) best = &place;
    }
    if (best == nullptr) return false;
    most->second -= Cost(*best);
    Note(*best, least->first);
    return true;
  }

  void Note(ShardPlace& place, ServerId to) {
    if (!move_) move_ = ShardMove{place.server, to, {}};
    if (move_->from == place.server && move_->to == to) move_->shards.push_back(place.shard);
    held_[to] += Cost(place);
    place.server = to;
  }

  std::vector<ShardPlace> places_;
  const std::set<ServerId>& leaving_;
  const std::map<ServerId, double>& shares_;
  const uint64_t frozen_from_;
  Held held_;  // costs, of those that stay
  std::optional<ShardMove> move_;
};

}  // namespace

std::optional<ShardMove> NextMove(absl::Span<const ShardPlace> places, const std::set<ServerId>& servers,
                                  const std::set<ServerId>& leaving, const std::map<ServerId, double>& shares,
                                  uint64_t frozen_from) {
  std::optional<ShardMove> move = Planner(places, servers, leaving, shares, frozen_from).Plan();
  if (move) std::sort(move->shards.begin(), move->shards.end());
  return move;
}

}  // namespace slackline::scheduler
