// Writes the chunks of one shard's pull into the trainer's parameters, and sees that none is missing.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/byte_segments.h"
#include "common/ids.h"

namespace slackline::worker {

// Copies: received slices -> parameters: 1.
//
// Thread-safety: none.
class PullWriter {
 public:
  // Writes `bytes` at element `offset` of `shard` (the shard's part of the parameters). A chunk at offset 0 begins
  // anew, since a pull that was said again may be served again.
  //   kInternal  out of order, beyond the shard, not whole elements, or of another version than the chunk before
  absl::Status Write(uint64_t offset, Version version, const ByteSegments& bytes, absl::Span<float> shard);

  // The pull is complete: all of the shard has arrived, or nothing did and it is `unchanged`.
  //   kInternal  elements are missing, or came of another version
  absl::Status Finish(Version version, bool unchanged, uint64_t shard_elements);

 private:
  uint64_t received_ = 0;  // elements, from the beginning of the shard
  Version version_;
};

}  // namespace slackline::worker
