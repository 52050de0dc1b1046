#include "common/rpc/frame.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace slackline::rpc {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr int kPayloadField = 15;
constexpr uint32_t kPayloadTag = WireFormatLite::MakeTag(kPayloadField, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

// Lets protobuf read slices in place.
class SliceStream : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit SliceStream(const std::vector<grpc::Slice>& slices) : slices_(slices) {}

  bool Next(const void** data, int* size) override {
    while (index_ < slices_.size() && offset_ == slices_[index_].size()) {
      ++index_;
      offset_ = 0;
    }
    if (index_ == slices_.size()) return false;
    *data = slices_[index_].begin() + offset_;
    *size = static_cast<int>(slices_[index_].size() - offset_);
    offset_ = slices_[index_].size();
    count_ += *size;
    return true;
  }

  void BackUp(int count) override {
    offset_ -= static_cast<size_t>(count);
    count_ -= count;
  }

  bool Skip(int count) override {
    const void* data;
    int size;
    while (count > 0) {
      if (!Next(&data, &size)) return false;
      if (size > count) BackUp(size - count);
      count -= std::min(size, count);
    }
    return true;
  }

  int64_t ByteCount() const override { return count_; }

 private:
  const std::vector<grpc::Slice>& slices_;
  size_t index_ = 0;
  size_t offset_ = 0;  // within slices_[index_]
  int64_t count_ = 0;
};

// Where the parts of a frame lie.
struct Layout {
  int header_size = 0;
  // Begin of the payload's bytes, counted from the begin of the frame; they reach to its end.
  int payload_begin = 0;
};

absl::Status CheckLimits(size_t fields, size_t header_bytes, const FrameLimits& limits) {
  if (fields > limits.fields_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame has more than ", limits.fields_max, " items and numbers; send it as several frames"));
  }
  if (header_bytes > limits.header_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat("frame has ", header_bytes, " bytes or more beside its payload; ",
                                                   "allowed are ", limits.header_bytes_max,
                                                   ": send it as several frames"));
  }
  return absl::OkStatus();
}

// Proto3 has no groups, and skipping one would read all that is in it.
bool IsGroup(uint32_t tag) {
  const WireFormatLite::WireType type = WireFormatLite::GetTagWireType(tag);
  return type == WireFormatLite::WIRETYPE_START_GROUP || type == WireFormatLite::WIRETYPE_END_GROUP;
}

absl::StatusOr<Layout> FindPayload(const std::vector<grpc::Slice>& slices, int frame_size, const FrameLimits& limits) {
  SliceStream stream(slices);
  CodedInputStream input(&stream);
  for (size_t fields = 0;; ++fields) {
    const int field_begin = input.CurrentPosition();
    if (absl::Status status = CheckLimits(fields, static_cast<size_t>(field_begin), limits); !status.ok()) {
      return status;
    }
    const uint32_t tag = input.ReadTag();
    if (tag == 0) {
      // ReadTag also gives 0 for a byte that is 0 and for a tag that is cut short.
      if (field_begin == frame_size) return Layout{frame_size, frame_size};
      return absl::InvalidArgumentError(absl::StrCat("frame has no valid field at byte ", field_begin));
    }
    if (tag != kPayloadTag) {
      const bool other = WireFormatLite::GetTagFieldNumber(tag) != kPayloadField && !IsGroup(tag);
      if (other && WireFormatLite::SkipField(&input, tag)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("field ", WireFormatLite::GetTagFieldNumber(tag), " at byte ", field_begin, " is malformed"));
    }
    uint64_t size = 0;
    if (!input.ReadVarint64(&size)) return absl::InvalidArgumentError("the payload's length is cut short");
    const int payload_begin = input.CurrentPosition();
    if (size != static_cast<uint64_t>(frame_size - payload_begin)) {
      return absl::InvalidArgumentError(absl::StrCat("the payload is said to have ", size, " bytes, the frame has ",
                                                     frame_size - payload_begin,
                                                     " after its length; the payload must be the last field"));
    }
    return Layout{field_begin, payload_begin};
  }
}

// What gRPC gives back on another thread. `handed_over` orders the two threads where a sanitizer sees it: gRPC's own
// reference count does so too, but it is not instrumented.
struct Lent {
  std::function<void()> release;
  std::atomic<bool> handed_over = false;
};

// Runs `release` when gRPC drops its last reference.
grpc::Slice Attach(absl::Span<const std::byte> payload, std::function<void()> release) {
  void* const memory = const_cast<std::byte*>(payload.data());  // gRPC only reads it
  if (release == nullptr) return grpc::Slice(memory, payload.size(), grpc::Slice::STATIC_SLICE);
  auto lent = std::make_unique<Lent>();
  lent->release = std::move(release);
  lent->handed_over.store(true, std::memory_order_release);
  return grpc::Slice(
      memory, payload.size(),
      [](void* data) {
        const std::unique_ptr<Lent> lent(static_cast<Lent*>(data));
        SLACKLINE_CHECK(lent->handed_over.load(std::memory_order_acquire));
        lent->release();
      },
      lent.release());
}

}  // namespace

grpc::ByteBuffer Build(const google::protobuf::MessageLite& header, absl::Span<Attachment> pieces) {
  size_t payload_size = 0;
  size_t inline_size = 0;  // of the first pieces, which lie in one slice with the small fields
  size_t attached_from = 0;
  for (const Attachment& piece : pieces) payload_size += piece.bytes.size();
  while (attached_from < pieces.size() && pieces[attached_from].bytes.size() <= kInlineBytes) {
    inline_size += pieces[attached_from++].bytes.size();
  }
  const size_t header_size = header.ByteSizeLong();
  uint8_t prefix[16];
  uint8_t* prefix_end = prefix;
  if (payload_size > 0) {
    prefix_end = CodedOutputStream::WriteTagToArray(kPayloadTag, prefix);
    prefix_end = CodedOutputStream::WriteVarint64ToArray(payload_size, prefix_end);
  }
  const auto prefix_size = static_cast<size_t>(prefix_end - prefix);
  const grpc::Slice front(grpc_slice_malloc(header_size + prefix_size + inline_size), grpc::Slice::STEAL_REF);
  auto* to = const_cast<uint8_t*>(front.begin());  // ours alone so far
  to = std::copy(prefix, prefix_end, header.SerializeWithCachedSizesToArray(to));
  std::vector<grpc::Slice> slices = {front};
  for (size_t i = 0; i < pieces.size(); ++i) {
    const absl::Span<const std::byte> bytes = pieces[i].bytes;
    if (i < attached_from) {
      if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
      to += bytes.size();
    } else if (bytes.size() <= kInlineBytes) {
      slices.push_back(grpc::Slice(bytes.data(), bytes.size()));
    } else {
      slices.push_back(Attach(bytes, std::move(pieces[i].release)));
      continue;
    }
    if (pieces[i].release != nullptr) pieces[i].release();
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

Payload PayloadCutter::Next(size_t bytes) {
  Payload part;
  part.owner_ = payload_.owner_;
  part.held_bytes_ = payload_.held_bytes_;
  while (bytes > 0) {
    const size_t piece = std::min(bytes, reader_.contiguous_left());
    part.segments_.Append({reader_.contiguous(piece), piece});
    reader_.Skip(piece);
    bytes -= piece;
  }
  return part;
}

absl::StatusOr<FoundFrame> FoundFrame::Find(const grpc::ByteBuffer& frame, const FrameLimits& limits) {
  const size_t frame_size = frame.Valid() ? frame.Length() : 0;
  if (frame_size > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("frame of ", frame_size, " bytes; at most ", INT32_MAX));
  }
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (frame_size > 0 && !frame.Dump(slices.get()).ok()) return absl::InvalidArgumentError("frame cannot be read");
  const absl::StatusOr<Layout> layout = FindPayload(*slices, static_cast<int>(frame_size), limits);
  if (!layout.ok()) return layout.status();
  FoundFrame found;
  found.slices_ = std::move(slices);
  found.header_bytes_ = static_cast<size_t>(layout->header_size);
  found.payload_begin_ = static_cast<size_t>(layout->payload_begin);
  return found;
}

absl::StatusOr<Payload> FoundFrame::Parse(google::protobuf::MessageLite& header) const {
  SliceStream stream(*slices_);
  if (!header.ParseFromBoundedZeroCopyStream(&stream, static_cast<int>(header_bytes_))) {
    return absl::InvalidArgumentError(absl::StrCat("frame is not a ", header.GetTypeName()));
  }
  Payload payload;
  size_t skip = payload_begin_;
  for (const grpc::Slice& slice : *slices_) {
    const size_t cut = std::min(skip, slice.size());
    skip -= cut;
    payload.segments_.Append({reinterpret_cast<const std::byte*>(slice.begin()) + cut, slice.size() - cut});
  }
  payload.owner_ = slices_;
  payload.held_bytes_ = payload_begin_ + payload.size();
  return payload;
}

absl::StatusOr<Payload> Parse(const grpc::ByteBuffer& frame, google::protobuf::MessageLite& header) {
  const absl::StatusOr<FoundFrame> found = FoundFrame::Find(frame);
  return found.ok() ? found->Parse(header) : found.status();
}

}  // namespace slackline::rpc
