// Frames in slices that are cut anywhere: read as protobuf reads the same bytes in one piece, or refused.
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/rpc/frame.h"
#include "parameter_server.pb.h"
#include "tests/fuzz/bytes_input.h"

namespace slackline::fuzz {
namespace {

constexpr uint32_t kCutsMax = 8;
// Some frames of the corpus are within these, and some beyond.
constexpr rpc::FrameLimits kLimits = {.fields_max = 4, .header_bytes_max = 64};

grpc::ByteBuffer Cut(const std::vector<size_t>& sizes, absl::string_view bytes) {
  std::vector<grpc::Slice> slices;
  for (const size_t size : sizes) {
    const absl::string_view piece = bytes.substr(0, size);
    slices.emplace_back(piece.data(), piece.size());
    bytes.remove_prefix(piece.size());
  }
  slices.emplace_back(bytes.data(), bytes.size());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string Read(const ByteSegments& segments) {
  std::string bytes(segments.size(), '\0');
  ByteReader(segments).Read(bytes.data(), bytes.size());
  return bytes;
}

template <typename Frame>
void Try(const grpc::ByteBuffer& buffer, absl::string_view bytes) {
  Frame read, expected;
  const absl::StatusOr<rpc::Payload> payload = rpc::Parse(buffer, read);
  if (!payload.ok()) {
    SLACKLINE_CHECK(absl::IsInvalidArgument(payload.status()) && !payload.status().message().empty());
    return;
  }
  SLACKLINE_CHECK(expected.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  SLACKLINE_CHECK(Read(payload->segments()) == expected.payload());
  expected.clear_payload();
  SLACKLINE_CHECK(read.SerializeAsString() == expected.SerializeAsString());

  const absl::StatusOr<rpc::FoundFrame> limited = rpc::FoundFrame::Find(buffer, kLimits);
  if (limited.ok()) {
    Frame again;
    SLACKLINE_CHECK(limited->header_bytes() <= kLimits.header_bytes_max && limited->Parse(again).ok());
    SLACKLINE_CHECK(again.SerializeAsString() == read.SerializeAsString());
  }

  // As the receivers deal it out.
  rpc::PayloadCutter cutter(*payload);
  for (const auto& item : read.items()) {
    if (item.payload_bytes() > cutter.left()) return;
    SLACKLINE_CHECK(Read(cutter.Next(item.payload_bytes()).segments()).size() == item.payload_bytes());
  }
}

}  // namespace
}  // namespace slackline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slackline::fuzz::BytesInput input(data, size);
  std::vector<size_t> sizes(input.TakeUpTo(slackline::fuzz::kCutsMax));
  for (size_t& piece : sizes) piece = input.Take<uint8_t>();
  const absl::string_view bytes = input.TakeRest();
  const grpc::ByteBuffer buffer = slackline::fuzz::Cut(sizes, bytes);
  slackline::fuzz::Try<slackline::wire::WorkerFrame>(buffer, bytes);
  slackline::fuzz::Try<slackline::wire::ServerFrame>(buffer, bytes);
  return 0;
}
