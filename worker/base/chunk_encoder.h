// Encodes gradients on the device that made them: they become wire bytes before the host has them as floats. This
// interface stands between a local group and the client; neither knows more of the other.
//
// A plan says which chunks of the flat vector a step leaves encoded. The host has no values of these chunks; all other
// elements of push() are on the host as usual. Bytes and residuals equal those of codec::EncodeWithFeedback(), or those
// of codec::Encode() for a chunk without error feedback.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/codec/codec.h"

namespace slackline::worker {

// Range of elements that is encoded on its own.
struct PlannedChunk {
  uint64_t begin = 0;  // index in the model
  uint64_t elements = 0;
  codec::Codec codec;  // fp32 is not allowed
  bool error_feedback = false;

  uint64_t end() const { return begin + elements; }
  friend bool operator==(const PlannedChunk&, const PlannedChunk&) = default;
};

// Bytes of an encoded chunk. They do not change while gRPC or the client holds them.
struct EncodedBytes {
  std::shared_ptr<const std::byte[]> bytes;
  size_t size = 0;
};

class ChunkEncoder {
 public:
  virtual ~ChunkEncoder() = default;

  // Sets the chunks that all steps from now on leave encoded; their residuals begin with 0. An empty plan means that
  // nothing is encoded, and that there are no residuals. Called between steps, by the thread that steps.
  // Requires: chunks ascend and have no elements in common.
  //   others  an error of the device: nothing will be encoded
  virtual absl::Status Plan(std::vector<PlannedChunk> chunks) = 0;

  // Returns the bytes of a chunk, made by the last step that wrote to this push(). May be called from any thread, until
  // the next step that writes there. Requires: the step has said that the elements of the chunk are ready.
  virtual EncodedBytes Take(const float* push, size_t chunk) = 0;

  // Gives back a chunk that will never be applied: the values in its bytes are added to its residual before the next
  // step encodes. May be called from any thread. Requires: a chunk with error feedback.
  virtual void Return(size_t chunk, EncodedBytes bytes) = 0;
};

}  // namespace slackline::worker
