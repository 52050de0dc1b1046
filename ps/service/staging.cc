#include "ps/service/staging.h"

#include "absl/strings/str_cat.h"
#include "ps/shard_state.h"

namespace slackline::ps {

absl::StatusOr<StagingBudget::Reservation> StagingBudget::Reserve(uint64_t bytes) {
  if (bytes > bytes_max_ - used_) {
    return absl::ResourceExhaustedError(absl::StrCat("push of ", bytes, " bytes: ", used_, " of ", bytes_max_,
                                                     " staging bytes (limits.staging_bytes_max) are in use"));
  }
  return Reservation(this, bytes);
}

absl::Status StagedPush::Add(const Chunk& chunk, const Limits& limits, rpc::Payload payload) {
  const uint64_t received = bytes_.size() / sizeof(float);
  if (payload.size() > limits.chunk_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload has ", payload.size(), " bytes; allowed are at most ", limits.chunk_bytes_max));
  }
  if (chunk.elements > limits.elements || payload.size() != chunk.elements * sizeof(float)) {
    return absl::InvalidArgumentError(absl::StrCat("payload has ", payload.size(), " bytes for ", chunk.elements,
                                                   " elements; expected are ", sizeof(float), " an element"));
  }
  if (chunk.offset != received) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk begins at element ", chunk.offset, "; expected is ", received));
  }
  if (chunk.elements > limits.elements - received || (chunk.last && received + chunk.elements != limits.elements)) {
    return absl::InvalidArgumentError(absl::StrCat("push has ", received + chunk.elements, chunk.last ? "" : " or more",
                                                   " elements; the shard has ", limits.elements));
  }
  if (!chunk.last && chunk.elements < kChunkElementsMin) {
    return absl::InvalidArgumentError(absl::StrCat("chunk has ", chunk.elements, " elements; all chunks but the last ",
                                                   "have at least ", kChunkElementsMin));
  }
  if (!CheckFinite(payload.segments())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a value of elements ", received, " to ", received + chunk.elements, " is not finite"));
  }
  bytes_.Append(payload.segments());
  chunks_.push_back(std::move(payload));
  return absl::OkStatus();
}

}  // namespace slackline::ps
