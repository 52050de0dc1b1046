// SharedMemory: the memory that a worker shares with one server on its host.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/rpc/frame.h"
#include "common/shm/loan_flag.h"
#include "common/shm/segment.h"
#include "worker/client/client.h"

namespace slackline::worker {

// SharedMemory maps the segments of a server's shards, so that the worker reads weights in place.
//
// Thread-safety: const calls are safe.
// Ownership:     keeps the shards' segments mapped; so does every Payload that it returns.
class SharedMemory {
 public:
  // Shares the worker's push segment with the server and maps the segments of its shards. Blocks for at most `timeout`.
  //   kUnavailable, kPermissionDenied, ...  the server does not share memory; use a socket
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Join(const ServerInfo& server, const ClientOptions& options,
                                                            absl::Duration timeout);

  // Token for the stream's Hello.
  const std::string& token() const { return token_; }
  // Returns `elements` elements of the shard's segment, starting at byte `offset`.
  //   kInternal  the shard is unknown, or the range ends beyond its segment
  absl::StatusOr<rpc::Payload> Find(ShardId shard, uint64_t offset, uint64_t elements) const;
  // Returns true if the server did not write to the shared memory while this thread was reading it. When the server
  // ends the stream, it takes all memory back and may write to it before the worker learns of the end.
  bool StillLent() const { return loan_->StillLent(); }

 private:
  std::string token_;
  std::map<ShardId, std::shared_ptr<const shm::MappedSegment>> shards_;
  std::unique_ptr<shm::LoanFlagView> loan_;
};

// Returns whether it is worth trying to share memory with a server.
bool MayShareMemory(const ServerInfo& server, const ClientOptions& options);

// Returns the offset of `values` in the segment, in bytes; nullopt if they do not lie in it.
std::optional<uint64_t> OffsetInSegment(const shm::Segment* segment, absl::Span<const float> values);

}  // namespace slackline::worker
