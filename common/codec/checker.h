// Validates encoded bytes. A receiver does so before it decodes them.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/base/byte_segments.h"
#include "common/codec/codec.h"

namespace slackline::codec {

// Checks the bytes of one sub-push while they arrive, message by message. An item may cross from one segment into the
// next at any byte.
//
// Thread-safety: none.
class Checker {
 public:
  // `elements` is the number of elements of the shard.
  Checker(const Codec& codec, uint64_t elements);

  // Checks the next bytes. After an error the sub-push is lost, but the checker stays as it was before the call.
  //   kInvalidArgument  too many, cut within an item, a value that is not finite, an index that does not ascend or
  //                     is not in the shard
  absl::Status Add(const ByteSegments& bytes);
  // Checks that the sub-push is complete. Call it after the last bytes.
  //   kInvalidArgument  the sub-push is incomplete
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
  // Top-k: the smallest index that may come next.
  uint64_t next_index_ = 0;
};

// Returns whether all values are finite. Also returns false if the last value is incomplete.
// Requires: fp32, bf16 or fp16.
bool AllFinite(Encoding encoding, const ByteSegments& bytes);

}  // namespace slackline::codec
