// Leases the parts of a stream: data of unknown length, such as files, that workers read from beginning to end. Pure.
//
// A lease names a part and the position to read from: the number of its records that are trained. A pass over the
// parts opens once all parts of the pass before it are given out, so nobody waits between passes. Ranges
// (data_ranges.h) count the samples of a job with a stream; the parts say which records those are.
//
// A fenced holder's parts go to others, from the position that its answered pushes have reached. The servers tell that
// position when they fence the worker. If a server does not know it, because it has restarted or taken over since the
// worker's last push, the position is the last one that the worker reported: records may then be trained twice, but
// none is lost.
//
// Thread-safety: none.
// Units:         positions in records of a part, from 0.
// Invariant:     every part of an opened pass is free, leased, or read to its end.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "scheduler/work/data_ranges.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

class StreamParts {
 public:
  using Positions = google::protobuf::RepeatedPtrField<wire::PartPosition>;
  // Largest numbers of parts of a stream, and of parts that one worker may hold.
  static constexpr uint32_t kPartsMax = 1'000'000;
  static constexpr uint32_t kHeldMax = 256;

  // Requires: Check() is OK.
  explicit StreamParts(const wire::Stream& stream) : stream_(stream) {}

  //   kInvalidArgument  the stream has no parts, or too many
  static absl::Status Check(const wire::Stream& stream);
  // Returns OK if another worker's stream is this one.
  //   kInvalidArgument  it is not; the message names the first difference
  absl::Status CheckSame(const wire::Stream& other) const;

  // Leases free parts to the holder until it has `wanted`, at most kHeldMax. Returns all that it has.
  std::vector<wire::PartLease> Lease(const Holder& holder, uint32_t wanted);

  // Notes positions in parts of the holder up to which every shard has answered. A part that ended is done. Leases that
  // the holder does not have, and smaller positions than before, change nothing.
  void Reached(const Holder& holder, const Positions& positions);

  // Notes what a server knows about a worker that it has fenced. Repeating it changes nothing.
  void Fenced(ServerId server, const wire::FencedWorker& worker);

  // Gives back the parts of a fenced holder. The servers' positions count if they speak for all `shards`.
  void Release(const Holder& holder, uint32_t shards);

  bool HasFree() const { return !free_.empty() || stream_.passes() == 0 || next_pass_ < stream_.passes(); }
  bool Holds(const Holder& holder) const;
  // True if each part was read to its end as often as the stream says.
  bool Finished() const { return leased_.empty() && !HasFree(); }
  std::vector<Holder> Holders() const;

  void Save(state::Stream& state) const;
  // Continues from a saved state. Requires: the parts are still as constructed, from the state's stream. Leases that
  // were given after the state was saved are unknown: their parts are given out again.
  void Restore(const state::Stream& state);

 private:
  struct Part {
    uint32_t pass = 0;
    uint32_t part = 0;
    friend auto operator<=>(const Part&, const Part&) = default;
  };
  struct Lent {
    Holder holder;
    Part part;
    uint64_t records = 0;
  };

  // Smallest position of a lease that the servers know, or the last one reported.
  uint64_t PositionOf(uint64_t lease, const Lent& lent, uint32_t shards) const;

  const wire::Stream stream_;
  uint64_t last_lease_ = 0;
  uint32_t next_pass_ = 0;
  std::map<Part, uint64_t> free_;  // with the position to go on from
  std::map<uint64_t, Lent> leased_;
  // Reports of each server about fenced workers that hold parts.
  std::map<Holder, std::map<ServerId, wire::FencedWorker>> fenced_;
};

}  // namespace slackline::scheduler
