// Frames of the data path: small fields through protobuf, tensor bytes beside it.
//
// A frame is a protobuf message whose last field is `bytes payload = 15`. Build() serialises the small fields and
// attaches the tensor memory as slices of a grpc::ByteBuffer, without a copy; Parse() reads the small fields and
// leaves the payload where it arrived. Both sides are plain protobuf on the wire.
//
// Copies: wire -> slices: 0; memory -> wire: 0.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/byte_segments.h"

namespace slackline::rpc {

// Serialises `header` (whose payload field must be empty) and attaches `payload`.
// `release` runs once gRPC has let go of the memory, on any thread; the memory must not change until then.
grpc::ByteBuffer Build(const google::protobuf::MessageLite& header, absl::Span<const std::byte> payload = {},
                       std::function<void()> release = nullptr);

// Received bytes that stay alive as long as this does. Copying shares them.
//
// Thread-safety: const calls are safe.
class Payload {
 public:
  Payload() = default;

  // The bytes in order; floats may lie across two segments, and need not be aligned.
  const ByteSegments& segments() const { return segments_; }
  size_t size() const { return segments_.size(); }

 private:
  friend absl::StatusOr<Payload> Parse(const grpc::ByteBuffer&, google::protobuf::MessageLite&);
  std::shared_ptr<const std::vector<grpc::Slice>> slices_;
  ByteSegments segments_;
};

// Reads the small fields of a frame into `header` (its payload field stays empty) and returns the payload.
// A field can lie across two slices anywhere, and senders may order fields as they like as long as the payload
// is the last one.
//   kInvalidArgument  not such a message; `header` is then unspecified
absl::StatusOr<Payload> Parse(const grpc::ByteBuffer& frame, google::protobuf::MessageLite& header);

}  // namespace slackline::rpc
