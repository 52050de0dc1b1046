// The bytes of one shard's pulls on their way into the trainer's parameters: written as they come while the trainer
// waits for them, else kept until it does. What came in a frame is kept where it arrived; what lies in the server's
// memory is copied at once, so that the server need not keep a version for a trainer that computes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
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
  // Only readable for now: it lies in the server's memory.
  bool lent = false;
};

// Copies: arrived bytes -> parameters: 1; lent and kept: 2.
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
  // Writes what was kept of the pull that is coming in; the rest of it is written as it comes.
  absl::Status WriteBegun(absl::Span<float> parameters);
  // The pull that is coming in and kept; nullopt when there is none.
  std::optional<PullId> begun() const {
    return kept_.empty() || kept_.back().finished ? std::nullopt : std::optional(kept_.back().id);
  }
  // The stream is gone: what is incomplete will be sent again.
  void DropUnfinished();

 private:
  struct Kept {
    PullId id;
    Version version;
    bool finished = false;
    bool unchanged = false;
    std::vector<ArrivedChunk> chunks;
  };
  using Copy = std::vector<std::byte>;

  // The same bytes in memory of our own.
  rpc::Payload Own(const rpc::Payload& lent);

  PullWriter writer_;
  std::deque<Kept> kept_;  // oldest first
  // Of lent chunks, for reuse: those that nobody else holds are free.
  std::vector<std::shared_ptr<Copy>> copies_;
};

}  // namespace slackline::worker
