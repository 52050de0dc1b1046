// Frames of the data path: small fields through protobuf, tensor bytes beside it.
//
// A frame is a protobuf message whose last field is `bytes payload = 15`. Build() serialises the small fields and
// attaches the tensor memory as slices of a grpc::ByteBuffer, without a copy; Parse() reads the small fields and
// leaves the payload where it arrived. Both sides are plain protobuf on the wire.
//
// All fields but the payload are the frame's header. A header of empty submessages becomes 28 times its size when it is
// parsed, so that whoever reads from strangers limits it first (FrameLimits).
//
// Copies: wire -> slices: 0; memory -> wire: 0, but for pieces of at most kInlineBytes: 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
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
  // Bytes of the whole frame, which stays in memory as long as this does; 0 for bytes that did not come in a frame.
  size_t held_bytes() const { return held_bytes_; }

 private:
  friend class FoundFrame;
  friend class PayloadCutter;
  std::shared_ptr<const void> owner_;
  ByteSegments segments_;
  size_t held_bytes_ = 0;
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

// How much of a frame a receiver takes before it parses any of it.
struct FrameLimits {
  // Fields at the top of the frame: items and numbers, without the payload.
  size_t fields_max = SIZE_MAX;
  size_t header_bytes_max = SIZE_MAX;
};

// A received frame of which nothing is parsed yet: only its header and its payload were told apart.
//
// Thread-safety: const calls are safe. Copying shares the bytes.
class FoundFrame {
 public:
  // Costs time for each field at the top of the frame, whatever is in it, and stops at the limits.
  //   kInvalidArgument  no such frame, or one beyond the limits
  static absl::StatusOr<FoundFrame> Find(const grpc::ByteBuffer& frame, const FrameLimits& limits = {});

  size_t header_bytes() const { return header_bytes_; }
  // Reads the header into `header` (its payload field stays empty) and returns the payload. A field can lie across two
  // slices anywhere, and senders may order fields as they like as long as the payload is the last one.
  //   kInvalidArgument  not such a message; `header` is then unspecified
  absl::StatusOr<Payload> Parse(google::protobuf::MessageLite& header) const;

 private:
  std::shared_ptr<const std::vector<grpc::Slice>> slices_;
  size_t header_bytes_ = 0;
  size_t payload_begin_ = 0;  // counted from the begin of the frame; the payload reaches to its end
};

// Find() without limits, and Parse().
absl::StatusOr<Payload> Parse(const grpc::ByteBuffer& frame, google::protobuf::MessageLite& header);

}  // namespace slackline::rpc
