#include "worker/client/pull_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/codec/block_decoder.h"

namespace slackline::worker {

absl::Status PullWriter::Write(const PulledChunk& chunk, const ByteSegments& bytes, absl::Span<float> shard) {
  if (chunk.offset == 0) {
    received_ = 0;
    version_ = chunk.version;
  }
  if (chunk.offset != received_) {
    return absl::InternalError(
        absl::StrCat("a chunk at element ", chunk.offset, " where element ", received_, " is next"));
  }
  if (chunk.version != version_) {
    return absl::InternalError(
        absl::StrCat("a chunk of version ", ToString(chunk.version), " in a pull of version ", ToString(version_)));
  }
  if (chunk.elements > shard.size() - chunk.offset ||
      !codec::IsEncodedLength(chunk.codec, chunk.elements, bytes.size())) {
    return absl::InternalError(absl::StrCat("a chunk of ", chunk.elements, " elements and ", bytes.size(),
                                            " bytes at element ", chunk.offset, " of a shard of ", shard.size(),
                                            " elements"));
  }
  const absl::Span<float> part = shard.subspan(chunk.offset, chunk.elements);
  if (chunk.codec.encoding == codec::Encoding::kFp32) {
    ByteReader(bytes).Read(part.data(), bytes.size());
  } else {
    codec::BlockDecoder(chunk.codec, bytes).Next(part);
  }
  received_ += chunk.elements;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> PullWriter::Finish(Version version, bool unchanged, const Lengths& lengths) {
  const uint64_t received = std::exchange(received_, 0);
  if (unchanged && received == 0) return received;
  if (received != lengths.shard && received != lengths.pushed) {
    return absl::InternalError(
        absl::StrCat("a pull ended after ", received, " of the shard's ", lengths.shard, " elements"));
  }
  if (received > 0 && version != version_) {
    return absl::InternalError(
        absl::StrCat("a pull of version ", ToString(version_), " ended as version ", ToString(version)));
  }
  return received;
}

}  // namespace slackline::worker
