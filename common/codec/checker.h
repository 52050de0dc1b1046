// What a receiver must know of encoded bytes before it may decode them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/byte_segments.h"
#include "common/codec/codec.h"

namespace slackline::codec {

// Checks the bytes of one sub-push while they arrive, message by message. Items may lie across segments at any byte.
//
// Thread-safety: none.
class Checker {
 public:
  // For a shard of so many elements.
  Checker(const Codec& codec, uint64_t elements);

  // The next bytes. After an error the sub-push is lost; the checker stays as it was before the call.
  //   kInvalidArgument  too many, cut within an item, a value that is not finite, an index that does not ascend or
  //                     is not in the shard
  absl::Status Add(const ByteSegments& bytes);
  // After the last bytes.
  //   kInvalidArgument  the sub-push is not whole
  absl::Status Finish() const;

  uint64_t bytes() const { return bytes_; }

 private:
  absl::Status CheckLength(uint64_t more) const;
  absl::Status CheckValues(const ByteSegments& bytes) const;
  absl::Status CheckScales(const ByteSegments& bytes) const;
  absl::Status CheckPairs(const ByteSegments& bytes);

  const Codec codec_;
  const uint64_t elements_;
  uint64_t bytes_ = 0;
  // Top-k: the least index that may come next.
  uint64_t next_index_ = 0;
};

// Whether all values are finite; false too where the last one is not whole.
// Requires: fp32, bf16 or fp16.
bool AllFinite(Encoding encoding, const ByteSegments& bytes);

}  // namespace slackline::codec
