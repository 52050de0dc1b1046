// Frames of the data path: small fields in protobuf, tensor bytes beside them.
//
// A frame is a protobuf message whose last field is `bytes payload = 15`. Build() serialises the small fields and
// attaches the tensor memory as slices of a grpc::ByteBuffer, without a copy; Parse() reads the small fields and
// leaves the payload where it arrived. Both sides are plain protobuf on the wire.
//
// All fields except the payload are the frame's header. A header of empty submessages grows to 28 times its size when
// it is parsed, so a receiver of frames from strangers must limit it first (FrameLimits).
//
// Copies: wire -> slices: 0; memory -> wire: 0, except for pieces of at most kInlineBytes: 1.
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
#include "common/base/byte_segments.h"

namespace slackline::rpc {

// Pieces up to this size are copied behind the small fields, since a copy is cheaper than a separate slice.
inline constexpr size_t kInlineBytes = 16 << 10;

// A part of a frame's payload.
struct Attachment {
  absl::Span<const std::byte> bytes;
  // Called on any thread once the memory is no longer read. The bytes must not change until then. For copied pieces it
  // is called at once.
  std::function<void()> release;
};

// Serialises `header` (whose payload field must be empty) and attaches the pieces of the payload in order.
grpc::ByteBuffer Build(const google::protobuf::MessageLite& header, absl::Span<Attachment> pieces = {});

// Received bytes that stay alive as long as this object. Copies share the bytes.
//
// Thread-safety: const calls are safe.
class Payload {
 public:
  Payload() = default;
  // Wraps bytes that did not come in a frame and that live as long as `owner`.
  Payload(absl::Span<const std::byte> bytes, std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), segments_(bytes) {}

  // Returns the bytes in order. A float may cross from one segment into the next, and need not be aligned.
  const ByteSegments& segments() const { return segments_; }
  size_t size() const { return segments_.size(); }
  // Returns the size of the whole frame, which stays in memory as long as this object; 0 for bytes that did not come in
  // a frame.
  size_t held_bytes() const { return held_bytes_; }

 private:
  friend class FoundFrame;
  friend class PayloadCutter;
  std::shared_ptr<const void> owner_;
  ByteSegments segments_;
  size_t held_bytes_ = 0;
};

// Splits a frame's payload into the parts of its items, front to back.
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

// Limits on a frame that a receiver checks before it parses any of it.
struct FrameLimits {
  // Number of top-level fields of the frame: items and numbers, without the payload.
  size_t fields_max = SIZE_MAX;
  size_t header_bytes_max = SIZE_MAX;
};

// A received frame that is not parsed yet. Only its header and its payload are separated.
//
// Thread-safety: const calls are safe. Copying shares the bytes.
class FoundFrame {
 public:
  // Separates header and payload. Takes time for each top-level field, whatever the field contains, and stops at the
  // limits.
  //   kInvalidArgument  the bytes are not a frame, or exceed the limits
  static absl::StatusOr<FoundFrame> Find(const grpc::ByteBuffer& frame, const FrameLimits& limits = {});

  size_t header_bytes() const { return header_bytes_; }
  // Parses the header into `header` (its payload field stays empty) and returns the payload. A field may cross from one
  // slice into the next anywhere. Senders may order fields freely as long as the payload is last.
  //   kInvalidArgument  the bytes are not such a message; `header` is then unspecified
  absl::StatusOr<Payload> Parse(google::protobuf::MessageLite& header) const;

 private:
  std::shared_ptr<const std::vector<grpc::Slice>> slices_;
  size_t header_bytes_ = 0;
  size_t payload_begin_ = 0;  // counted from the frame's beginning; the payload reaches to its end
};

// Calls Find() without limits, then Parse().
absl::StatusOr<Payload> Parse(const grpc::ByteBuffer& frame, google::protobuf::MessageLite& header);

}  // namespace slackline::rpc
