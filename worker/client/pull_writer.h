// Writes the chunks of one shard's pull into the trainer's parameters, and sees that none is missing.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/byte_segments.h"
#include "common/codec/codec.h"
#include "common/ids.h"

namespace slackline::worker {

// A piece of a shard's weights, but for its bytes.
struct PulledChunk {
  uint64_t offset = 0;  // first element, from the beginning of the shard
  uint64_t elements = 0;
  codec::Codec codec = {};
  Version version;
};

// Copies: received slices -> parameters: 1, decoded on the way.
//
// Thread-safety: none.
class PullWriter {
 public:
  // Writes the chunk's values into `shard` (the shard's part of the parameters). A chunk at offset 0 begins anew, since
  // a pull that was said again may be served again.
  //   kInternal  out of order, beyond the shard, another length than its elements have, or of another version than the
  //              chunk before
  absl::Status Write(const PulledChunk& chunk, const ByteSegments& bytes, absl::Span<float> shard);

  // The pull is complete: all of the shard has arrived, or nothing did and it is `unchanged`; or all but what is
  // frozen, of a shard that was there already. Returns how many elements came.
  //   kInternal  elements are missing, or came of another version
  struct Lengths {
    uint64_t shard = 0;
    uint64_t pushed = 0;  // as `shard` where all must come
  };
  absl::StatusOr<uint64_t> Finish(Version version, bool unchanged, const Lengths& lengths);

 private:
  uint64_t received_ = 0;  // elements, from the beginning of the shard
  Version version_;
};

}  // namespace slackline::worker
