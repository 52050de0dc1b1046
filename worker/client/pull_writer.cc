#include "worker/client/pull_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace slackline::worker {

absl::Status PullWriter::Write(uint64_t offset, Version version, const ByteSegments& bytes, absl::Span<float> shard) {
  if (offset == 0) {
    received_ = 0;
    version_ = version;
  }
  if (offset != received_) {
    return absl::InternalError(absl::StrCat("a chunk at element ", offset, " where element ", received_, " is next"));
  }
  if (version != version_) {
    return absl::InternalError(
        absl::StrCat("a chunk of version ", ToString(version), " in a pull of version ", ToString(version_)));
  }
  const uint64_t elements = bytes.size() / sizeof(float);
  if (bytes.size() % sizeof(float) != 0 || elements > shard.size() - offset) {
    return absl::InternalError(absl::StrCat("a chunk of ", bytes.size(), " bytes at element ", offset,
                                            " of a shard of ", shard.size(), " elements"));
  }
  ByteReader(bytes).Read(shard.data() + offset, bytes.size());
  received_ += elements;
  return absl::OkStatus();
}

absl::Status PullWriter::Finish(Version version, bool unchanged, uint64_t shard_elements) {
  const uint64_t received = std::exchange(received_, 0);
  if (unchanged && received == 0) return absl::OkStatus();
  if (received != shard_elements) {
    return absl::InternalError(
        absl::StrCat("a pull ended after ", received, " of the shard's ", shard_elements, " elements"));
  }
  if (version != version_) {
    return absl::InternalError(
        absl::StrCat("a pull of version ", ToString(version_), " ended as version ", ToString(version)));
  }
  return absl::OkStatus();
}

}  // namespace slackline::worker
