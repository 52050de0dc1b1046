// What a worker says, cut into items: tensors as chunks of the trainer's memory, pulls of one server in one item.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/rpc/frame.h"
#include "parameter_server.pb.h"
#include "worker/client/client.h"
#include "worker/client/loans.h"
#include "worker/client/push_encoder.h"
#include "worker/client/session.h"

namespace slackline::worker {

// An item that waits for its turn on a stream. Borrows `payload`, and counts that in `loans`.
struct Outgoing {
  wire::WorkerItem item;
  absl::Span<const std::byte> payload;
  std::shared_ptr<Loans> loans;
  // Makes the payload, with an owner of its own, when the item's turn comes. Null where it is there already.
  std::function<rpc::Attachment()> encode;
  // What the server has to work on for it, in shared memory too: small items travel together, large ones alone, so that
  // one is answered while the next is on its way.
  uint64_t bytes = 0;
};

// One sub-push to one shard.
struct SubPush {
  // The shard's part of the trainer's push (or of the initial weights).
  absl::Span<const float> values;
  wire::PushChunk first;  // shard, sequence, seed; offset and commit are filled in
  // Goes with the last chunk. Absent: AppendCommit() follows.
  std::optional<wire::PushCommit> trailer;
  std::shared_ptr<Loans> loans;
};

// Appends the chunks of `push`, each at most `chunk_bytes` long; what fits into one chunk is one item.
void AppendPush(const SubPush& push, uint64_t chunk_bytes, std::vector<Outgoing>& items);

// The same for a push whose chunks are encoded, which is recorded in `trace`. Shares `encoded`, and borrows the
// encoder.
void AppendEncodedPush(const SubPush& push, PushEncoder& encoder, const std::shared_ptr<PushEncoder::Push>& encoded,
                       std::vector<Outgoing>& items, const TraceRow& trace);

// The same for a push whose values lie in the push segment, `offset` bytes from its beginning: one item, no payload.
void AppendSharedPush(const SubPush& push, uint64_t offset, std::vector<Outgoing>& items);

// The trailer alone, for a push whose values went out on the stream before it.
// Requires: a trailer.
void AppendCommit(const SubPush& push, std::vector<Outgoing>& items);

// The sub-push that `send` asks for.
// Requires: send.push.
SubPush GradientPush(const Session::Send& send, const PushInfo& info, absl::Span<const float> values);
// What can be said of it before the step is complete.
SubPush OpenPush(ShardId shard, Sequence sequence, absl::Span<const float> values);
SubPush SeedPush(ShardId shard, absl::Span<const float> values);

// Appends the pulls that `sends` ask for: one item for all that share an id and a clock.
void AppendPulls(absl::Span<const Session::Send> sends, bool averaged, std::vector<Outgoing>& items);

inline Version FromWire(const wire::Version& version) {
  return {.lineage = Lineage(version.lineage()), .number = version.number()};
}

}  // namespace slackline::worker
