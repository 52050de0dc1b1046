// Strong integer types: two of them cannot be swapped by mistake, and none converts to a plain number unasked.
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

  // The next one in order.
  constexpr StrongId Next() const { return StrongId(value_ + 1); }

 private:
  Value value_ = 0;
};

// A job, chosen at random when its scheduler starts.
using JobId = StrongId<struct JobIdTag, uint64_t>;
// A worker process; numbered from 1 by the scheduler, 0 is nobody.
using WorkerId = StrongId<struct WorkerIdTag, uint32_t>;
// A server process; numbered from 1 by the scheduler, 0 is nobody.
using ServerId = StrongId<struct ServerIdTag, uint32_t>;
// A logical shard; numbered from 0 in the order of the elements they hold.
using ShardId = StrongId<struct ShardIdTag, uint32_t>;
// One life of a member; later ones are larger, over all members. 0 is none.
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;
// A worker's completed pushes. The push that makes clock c has sequence c, so the two share one type.
using Clock64 = StrongId<struct ClockTag, uint64_t>;
using Sequence = Clock64;
// A state of the shard map.
using Generation = StrongId<struct GenerationTag, uint64_t>;
// A state of the set of live workers.
using Epoch = StrongId<struct MembersEpochTag, uint64_t>;
// One life line of a shard's state; raised by every restore and promotion.
using Lineage = StrongId<struct LineageTag, uint32_t>;
// A worker's request for weights.
using PullId = StrongId<struct PullIdTag, uint64_t>;
// A part of an epoch's data that one worker trains on.
using RangeId = StrongId<struct RangeIdTag, uint64_t>;

// Names one state of one shard. Versions of different lineages cannot be compared by number.
struct Version {
  Lineage lineage;
  // Steps applied since the job began.
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
