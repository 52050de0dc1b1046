// The bytes of one shard's pulls on their way into the trainer's parameters: written as they come while the trainer
// waits for them, else kept where they arrived until it does.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/rpc/frame.h"
#include "worker/client/pull_writer.h"

namespace slackline::worker {

// A piece of a shard as it came.
struct ArrivedChunk {
  PullId id;
  PulledChunk chunk;
  rpc::Payload bytes;
  // Lent in shared memory: the server waits to hear that it was read.
  bool lent = false;
};

// Copies: arrived bytes -> parameters: 1.
//
// Thread-safety: none.
class Arrivals {
 public:
  // Takes a chunk. `parameters` is the shard's part, empty when the trainer must not be disturbed.
  //   kInternal  as PullWriter::Write()
  absl::Status Add(ArrivedChunk chunk, absl::Span<float> parameters);
  // The pull is complete.
  //   kInternal  as PullWriter::Finish()
  absl::Status Finish(PullId id, Version version, bool unchanged, uint64_t shard_elements);
  // Writes what was kept of complete pulls.
  absl::Status WriteFinished(absl::Span<float> parameters);
  // The stream is gone: what is incomplete will be sent again.
  void DropUnfinished();
  // The pulls with lent chunks that were read to the end since the last call.
  std::vector<PullId> TakeRead() { return std::exchange(read_, {}); }

 private:
  struct Kept {
    PullId id;
    Version version;
    bool finished = false;
    bool unchanged = false;
    std::vector<ArrivedChunk> chunks;
  };

  void NoteRead(PullId id, bool lent);

  PullWriter writer_;
  bool writing_lent_ = false;  // the pull that writer_ is at has lent chunks
  std::vector<PullId> read_;
  std::deque<Kept> kept_;  // oldest first
};

}  // namespace slackline::worker
