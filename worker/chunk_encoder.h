// Where gradients become wire bytes before the host has them as floats: on the device that made them. What stands
// between a local group and the client; neither knows more of the other.
//
// A plan says which chunks of the flat vector a step leaves encoded; the host has no values of these. All else of
// push() is there as ever. Bytes and residuals are those of codec::EncodeWithFeedback(), or of codec::Encode().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/codec/codec.h"

namespace slackline::worker {

// Elements that are encoded by themselves.
struct PlannedChunk {
  uint64_t begin = 0;  // in the model
  uint64_t elements = 0;
  codec::Codec codec;  // not fp32
  bool error_feedback = false;

  uint64_t end() const { return begin + elements; }
  friend bool operator==(const PlannedChunk&, const PlannedChunk&) = default;
};

// They stay as they are for as long as somebody holds them, gRPC or the client.
struct EncodedBytes {
  std::shared_ptr<const std::byte[]> bytes;
  size_t size = 0;
};

class ChunkEncoder {
 public:
  virtual ~ChunkEncoder() = default;

  // What the steps from here on leave encoded, with residuals that begin with 0. Empty: nothing, and no residuals.
  // Between steps, by the thread that steps.
  // Requires: chunks ascend and have no elements in common.
  //   others  of the device: nothing will be encoded
  virtual absl::Status Plan(std::vector<PlannedChunk> chunks) = 0;

  // What the last step that wrote to this push() has made of a chunk, whose elements it has said to be ready. From any
  // thread, until the next step that writes there.
  virtual EncodedBytes Take(const float* push, size_t chunk) = 0;

  // The chunk will never be applied: what its bytes say is added to its residual before the next step encodes. From any
  // thread. Requires: a chunk with error feedback.
  virtual void Return(size_t chunk, EncodedBytes bytes) = 0;
};

}  // namespace slackline::worker
