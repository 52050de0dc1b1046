// Frames of the data path: small fields through protobuf, tensor bytes beside it.
//
// A frame is a protobuf message whose last field is `bytes payload = 15`. Build() serialises the small fields and
// attaches the tensor memory as slices of a grpc::ByteBuffer, without a copy; Parse() reads the small fields and
// leaves the payload where it arrived. Both sides are plain protobuf on the wire.
//
// Copies: wire -> slices: 0; memory -> wire: 0, but for pieces of at most kInlineBytes: 1.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/byte_segments.h"

namespace slackline::rpc {

// Pieces up to this size are copied behind the small fields: a copy is cheaper than a slice of its own.
inline constexpr size_t kInlineBytes = 16 << 10;

// A part of a frame's payload.
struct Attachment {
  absl::Span<const std::byte> bytes;
  // Runs once the memory is no longer read, on any thread; the bytes must not change until then. For pieces that are
  // copied it runs at once.
  std::function<void()> release;
};

// Serialises `header` (whose payload field must be empty) and attaches the pieces of the payload in their order.
grpc::ByteBuffer Build(const google::protobuf::MessageLite& header, absl::Span<Attachment> pieces = {});

// Received bytes that stay alive as long as this does. Copying shares them.
//
// Thread-safety: const calls are safe.
class Payload {
 public:
  Payload() = default;
  // Bytes that did not come in a frame, alive as long as `owner`.
  Payload(absl::Span<const std::byte> bytes, std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), segments_(bytes) {}

  // The bytes in order; floats may lie across two segments, and need not be aligned.
  const ByteSegments& segments() const { return segments_; }
  size_t size() const { return segments_.size(); }

 private:
  friend absl::StatusOr<Payload> Parse(const grpc::ByteBuffer&, google::protobuf::MessageLite&);
  friend class PayloadCutter;
  std::shared_ptr<const void> owner_;
  ByteSegments segments_;
};

// Deals a frame's payload out to its items, front to back.
//
// Thread-safety: none.
// Ownership:     borrows the payload; the parts keep the bytes alive by themselves.
class PayloadCutter {
 public:
  explicit PayloadCutter(const Payload& payload) : payload_(payload), reader_(payload.segments()) {}

  size_t left() const { return reader_.left(); }
  // Requires: bytes <= left().
  Payload Next(size_t bytes);

 private:
  const Payload& payload_;
  ByteReader reader_;
};

// Reads the small fields of a frame into `header` (its payload field stays empty) and returns the payload.
// A field can lie across two slices anywhere, and senders may order fields as they like as long as the payload
// is the last one.
//   kInvalidArgument  not such a message; `header` is then unspecified
absl::StatusOr<Payload> Parse(const grpc::ByteBuffer& frame, google::protobuf::MessageLite& header);

}  // namespace slackline::rpc
