// SegmentGrants: shared memory for workers of the same host. Says who may read and write which memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/frame.h"
#include "common/shm/loan_flag.h"
#include "common/shm/segment.h"
#include "common/time/clock.h"
#include "parameter_server.pb.h"
#include "ps/host/peer.h"
#include "ps/host/shard_host.h"

namespace slackline::ps {

// Shared memory for a worker of this host: the shards' segments, and a token. The worker's own segment is for the
// stream that the worker will open with this token.
struct SegmentGrant {
  wire::SegmentOffer offer;
  std::vector<shm::SharedDescriptor> descriptors;  // segment of each shard in the offer, and the loan flag
};

// Keeps what was granted until the worker opens its stream.
//
// Thread-safety: none; the sequencer calls it.
// Limits:        `grants_max` grants that nobody has used; each is forgotten after `unused_max`.
class SegmentGrants {
 public:
  // Borrows `time`.
  SegmentGrants(uint64_t grants_max, absl::Duration unused_max, const TimeSource& time)
      : grants_max_(grants_max), unused_max_(unused_max), time_(time) {}

  // Grants the segments of `shards`.
  //   kUnavailable        the shards do not lie in shared memory
  //   kResourceExhausted  too many workers have asked and opened no stream
  absl::StatusOr<SegmentGrant> Add(const Sender& sender, const std::map<uint32_t, std::unique_ptr<ShardHost>>& shards,
                                   std::shared_ptr<const shm::MappedSegment> push_segment);
  // Gives the stream what was granted to its token; the token is then used up.
  void Take(const std::string& token, Caller& caller);
  // Forgets the grants of workers that have not come with their token in time.
  void ForgetOld();
  void Clear() { granted_.clear(); }

 private:
  struct Granted {
    Sender sender;
    std::shared_ptr<const shm::MappedSegment> push_segment;
    std::shared_ptr<shm::LoanFlag> loan;
    absl::Time since;
  };

  const uint64_t grants_max_;
  const absl::Duration unused_max_;
  const TimeSource& time_;
  std::map<std::string, Granted> granted_;  // keyed by token
};

// Returns the chunk's bytes in the segment of the worker that sends it.
//   kInvalidArgument  the stream has no segment, or the chunk is not one that may lie there, or not in it
absl::StatusOr<rpc::Payload> FindInSegment(const Caller& caller, const wire::PushChunk& chunk,
                                           const rpc::Payload& payload);

}  // namespace slackline::ps
