// What a worker says, cut into frames: tensors as chunks of the trainer's memory, pulls of one server in one frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "parameter_server.pb.h"
#include "worker/client/client.h"
#include "worker/client/session.h"

namespace slackline::worker {

// A frame that waits for its turn on a stream. Borrows `payload`.
struct Outgoing {
  wire::WorkerFrame header;
  absl::Span<const std::byte> payload;
};

// One sub-push to one shard.
struct SubPush {
  // The shard's part of the trainer's push (or of the initial weights).
  absl::Span<const float> values;
  wire::PushChunk first;     // shard, sequence, seed; offset and commit are filled in
  wire::PushCommit trailer;  // goes with the last chunk
};

// Appends the chunks of `push`, each at most `chunk_bytes` long; what fits into one chunk is one frame.
void AppendPush(const SubPush& push, uint64_t chunk_bytes, std::vector<Outgoing>& frames);

// The sub-push that `send` asks for.
// Requires: send.push.
SubPush GradientPush(const Session::Send& send, const PushInfo& info, absl::Span<const float> values);
SubPush SeedPush(ShardId shard, absl::Span<const float> values);

// Appends the pulls that `sends` ask for: one frame for all that share an id and a clock.
void AppendPulls(absl::Span<const Session::Send> sends, std::vector<Outgoing>& frames);

inline Version FromWire(const wire::Version& version) {
  return {.lineage = Lineage(version.lineage()), .number = version.number()};
}

}  // namespace slackline::worker
