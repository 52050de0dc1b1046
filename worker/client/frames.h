// Cuts a worker's messages into items: tensors as chunks of the trainer's memory, and the pulls from one server as one
// item.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/rpc/frame.h"
#include "parameter_server.pb.h"
#include "worker/client/client.h"
#include "worker/client/loans.h"
#include "worker/client/push_encoder.h"
#include "worker/client/session.h"

namespace slackline::worker {

// An item that waits for its turn on a stream. Borrows `payload`, and counts the loan in `loans`.
struct Outgoing {
  wire::WorkerItem item;
  absl::Span<const std::byte> payload;
  std::shared_ptr<Loans> loans;
  // Creates the payload, with its own owner, when the item's turn comes. Null if the payload already exists.
  std::function<rpc::Attachment()> encode;
  // Number of bytes that the server processes for this item, also in shared memory. Small items share a frame. Large
  // items travel alone, so that one is answered while the next is in transit.
  uint64_t bytes = 0;
};

// A sub-push to one shard.
struct SubPush {
  // The shard's part of the trainer's push, or of the initial weights.
  absl::Span<const float> values;
  wire::PushChunk first;  // has shard, sequence and seed; offset and commit are filled in per chunk
  // Trailer of the last chunk. If absent, AppendCommit() sends it later.
  std::optional<wire::PushCommit> trailer;
  std::shared_ptr<Loans> loans;
};

// Appends the chunks of `push`, each at most `chunk_bytes` long. A push that fits into one chunk is one item.
void AppendPush(const SubPush& push, uint64_t chunk_bytes, std::vector<Outgoing>& items);

// Appends the chunks of an encoded push, and records their encoding in `trace`. Shares `encoded`, and borrows the
// encoder.
void AppendEncodedPush(const SubPush& push, PushEncoder& encoder, const std::shared_ptr<PushEncoder::Push>& encoded,
                       std::vector<Outgoing>& items, const TraceRow& trace);

// Appends a push whose values lie in the push segment, `offset` bytes from its beginning: one item, no payload.
void AppendSharedPush(const SubPush& push, uint64_t offset, std::vector<Outgoing>& items);

// Appends only the trailer, for a push whose values were sent earlier on the stream.
// Requires: a trailer.
void AppendCommit(const SubPush& push, std::vector<Outgoing>& items);

// Returns the sub-push that `send` asks for.
// Requires: send.push.
SubPush GradientPush(const Session::Send& send, const PushInfo& info, absl::Span<const float> values);
// Returns a sub-push without a trailer, for a step that is not complete yet.
SubPush OpenPush(ShardId shard, Sequence sequence, absl::Span<const float> values);
SubPush SeedPush(ShardId shard, absl::Span<const float> values);

// Appends the pulls that `sends` ask for: one item for all pulls that share an id and a clock.
void AppendPulls(absl::Span<const Session::Send> sends, bool averaged, std::vector<Outgoing>& items);

// Returns the greeting of a stream to the server that has these shards, without the token of a segment.
wire::Hello MakeHello(const ClientOptions& options, const Session& session, absl::Span<const ShardId> shards);

// Returns the status in `refused`, with what was refused.
absl::Status ToStatus(const wire::Refused& refused);

inline Version FromWire(const wire::Version& version) {
  return {.lineage = Lineage(version.lineage()), .number = version.number()};
}

}  // namespace slackline::worker
