// Writes the chunks of one shard's pull into the trainer's parameters, and checks that none is missing.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/byte_segments.h"
#include "common/base/ids.h"
#include "common/codec/codec.h"

namespace slackline::worker {

// Position, encoding and version of one piece of a shard's weights, without its bytes.
struct PulledChunk {
  uint64_t offset = 0;  // first element, relative to the shard's beginning
  uint64_t elements = 0;
  codec::Codec codec = {};
  Version version;
};

// PullWriter assembles one shard's weights.
//
// Copies:        received slices -> parameters: 1, decoded during the copy.
// Thread-safety: none.
class PullWriter {
 public:
  // Writes the chunk's values into `shard` (the shard's part of the parameters). A chunk at offset 0 starts over, since
  // a repeated pull may be served again.
  //   kInternal  the chunk is out of order, beyond the shard, of a length that does not match its elements, or of
  //              another version than the chunk before
  absl::Status Write(const PulledChunk& chunk, const ByteSegments& bytes, absl::Span<float> shard);

  // Ends the pull and returns the number of elements that arrived. A pull is complete in three cases: the whole shard
  // arrived; nothing arrived and the shard is `unchanged`; or all except the frozen elements arrived, for a shard that
  // the worker already had.
  //   kInternal  elements are missing, or belong to another version
  struct Lengths {
    uint64_t shard = 0;
    uint64_t pushed = 0;  // equals `shard` if all elements must arrive
  };
  absl::StatusOr<uint64_t> Finish(Version version, bool unchanged, const Lengths& lengths);

 private:
  uint64_t received_ = 0;  // number of elements, from the shard's beginning
  Version version_;
};

}  // namespace slackline::worker
