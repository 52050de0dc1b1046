// Strong integer types: two of them cannot be swapped by mistake, and none converts implicitly to a plain number.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

namespace slackline {

template <typename Tag, typename Value>
class StrongId {
 public:
  using value_type = Value;

  constexpr StrongId() = default;
  constexpr explicit StrongId(Value value) : value_(value) {}

  constexpr Value value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
  friend std::ostream& operator<<(std::ostream& out, StrongId id) { return out << id.value_; }
  template <typename H>
  friend H AbslHashValue(H state, StrongId id) {
    return H::combine(std::move(state), id.value_);
  }

  // Returns the next id in order.
  constexpr StrongId Next() const { return StrongId(value_ + 1); }

 private:
  Value value_ = 0;
};

// A job, chosen at random when its scheduler starts.
using JobId = StrongId<struct JobIdTag, uint64_t>;
// A worker process; numbered from 1 by the scheduler, 0 is no worker.
using WorkerId = StrongId<struct WorkerIdTag, uint32_t>;
// A server process; numbered from 1 by the scheduler, 0 is no server.
using ServerId = StrongId<struct ServerIdTag, uint32_t>;
// A logical shard; numbered from 0 in the order of the elements that the shards hold.
using ShardId = StrongId<struct ShardIdTag, uint32_t>;
// Identifies a life of a member. A later life has a larger number, also across members. 0 is none.
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;
// Number of a worker's completed pushes. The push that makes clock c has sequence c, so the two share one type.
using Clock64 = StrongId<struct ClockTag, uint64_t>;
using Sequence = Clock64;
// Identifies a state of the shard map.
using Generation = StrongId<struct GenerationTag, uint64_t>;
// Identifies a state of the set of live workers.
using Epoch = StrongId<struct MembersEpochTag, uint64_t>;
// Identifies a line of a shard's history; every restore and every promotion starts a new one with a higher number.
using Lineage = StrongId<struct LineageTag, uint32_t>;
// A worker's request for weights.
using PullId = StrongId<struct PullIdTag, uint64_t>;
// A part of an epoch's data that one worker trains on.
using RangeId = StrongId<struct RangeIdTag, uint64_t>;

// Names one state of one shard. Versions of different lineages cannot be compared by number.
struct Version {
  Lineage lineage;
  // Number of steps applied since the job began.
  uint64_t number = 0;

  friend constexpr bool operator==(const Version&, const Version&) = default;
};

inline std::string ToString(const Version& version) {
  return std::to_string(version.lineage.value()) + "." + std::to_string(version.number);
}
inline std::ostream& operator<<(std::ostream& out, const Version& version) { return out << ToString(version); }

}  // namespace slackline

template <typename Tag, typename Value>
struct std::hash<slackline::StrongId<Tag, Value>> {
  size_t operator()(slackline::StrongId<Tag, Value> id) const noexcept { return std::hash<Value>{}(id.value()); }
};
