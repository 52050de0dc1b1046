// The memory that a worker shares with one server of its host.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/rpc/frame.h"
#include "common/shm/loan_flag.h"
#include "common/shm/segment.h"
#include "worker/client/client.h"

namespace slackline::worker {

// Thread-safety: const calls are safe.
// Ownership:     keeps the shards' segments mapped; so does every Payload that it gives.
class SharedMemory {
 public:
  // Shares the worker's push segment with the server and maps the segments of its shards. Waits for `timeout` at
  // most.
  //   kUnavailable, kPermissionDenied, ...  the server does not share; a socket will do
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Join(const ServerInfo& server, const ClientOptions& options,
                                                            absl::Duration timeout);

  // For Hello.
  const std::string& token() const { return token_; }
  // So many elements of the shard's segment, from this byte on.
  //   kInternal  no such shard, or beyond its segment
  absl::StatusOr<rpc::Payload> Find(ShardId shard, uint64_t offset, uint64_t elements) const;
  // True if what this thread has read there so far was not written meanwhile. The server takes all of it back when it
  // ends the stream, and then it may write before the worker hears of that.
  bool StillLent() const { return loan_->StillLent(); }

 private:
  std::string token_;
  std::map<ShardId, std::shared_ptr<const shm::MappedSegment>> shards_;
  std::unique_ptr<shm::LoanFlagView> loan_;
};

// Whether a server is one to try it with.
bool MayShareMemory(const ServerInfo& server, const ClientOptions& options);

// Where `values` begin in the segment, in bytes; nullopt when they do not lie in it.
std::optional<uint64_t> OffsetInSegment(const shm::Segment* segment, absl::Span<const float> values);

}  // namespace slackline::worker
