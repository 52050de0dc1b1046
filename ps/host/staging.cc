#include "ps/host/staging.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/codec/checker.h"

namespace slackline::ps {
namespace {

rpc::Payload Copied(const ByteSegments& segments) {
  const std::shared_ptr<std::byte[]> bytes(new std::byte[segments.size()]);
  ByteReader(segments).Read(bytes.get(), segments.size());
  return rpc::Payload({bytes.get(), segments.size()}, bytes);
}

}  // namespace

absl::StatusOr<StagingBudget::Reservation> StagingBudget::Reserve(uint64_t bytes) {
  if (bytes > bytes_max_ - used_) {
    return absl::ResourceExhaustedError(absl::StrCat("push of ", bytes, " bytes: ", used_, " of ", bytes_max_,
                                                     " staging bytes (limits.staging_bytes_max) are in use"));
  }
  return Reservation(this, bytes);
}

absl::Status StagedPush::Add(const Chunk& chunk, const Limits& limits, rpc::Payload payload) {
  absl::Status status = CheckLength(chunk, limits, payload);
  if (status.ok()) status = CheckPlace(chunk, limits);
  if (!status.ok()) return status;
  const bool holds_more = payload.held_bytes() / kHeldPartsMax > payload.size();
  // The values that are kept are checked, not bytes that others may write to meanwhile.
  if (chunk.copied || holds_more || payload.size() < kHeldBytesMin) payload = Copied(payload.segments());
  if (absl::Status values = CheckValues(chunk, payload); !values.ok()) return values;
  if (!chunk.last && chunk.elements < kChunkElementsMin) ++small_chunks_;
  received_ += chunk.elements;
  if (chunk.elements == 0) return absl::OkStatus();
  Append(chunk, payload.segments());
  chunks_.push_back(std::move(payload));
  return absl::OkStatus();
}

void StagedPush::Own() {
  std::vector<rpc::Payload> copies;
  for (EncodedPiece& piece : pieces_) {
    copies.push_back(Copied(piece.bytes));
    piece.bytes = copies.back().segments();
  }
  chunks_ = std::move(copies);
}

absl::Status StagedPush::CheckPlace(const Chunk& chunk, const Limits& limits) const {
  if (chunk.offset != received_) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk begins at element ", chunk.offset, "; expected is ", received_));
  }
  const uint64_t left = limits.elements - received_;
  if (chunk.elements > left || (chunk.last && chunk.elements != left)) {
    return absl::InvalidArgumentError(absl::StrCat("push has ", received_ + chunk.elements,
                                                   chunk.last ? "" : " or more", " elements; the shard has ",
                                                   limits.elements));
  }
  if (chunk.last) return absl::OkStatus();
  if (chunk.elements == 0) return absl::InvalidArgumentError("chunk has 0 elements and is not the last");
  if (chunk.elements < kChunkElementsMin && small_chunks_ == kSmallChunksMax) {
    return absl::InvalidArgumentError(absl::StrCat("chunk has ", chunk.elements, " elements, as ", small_chunks_,
                                                   " before it had fewer than ", kChunkElementsMin,
                                                   "; allowed are no more, but for the last"));
  }
  return absl::OkStatus();
}

absl::Status StagedPush::CheckLength(const Chunk& chunk, const Limits& limits, const rpc::Payload& payload) {
  if (payload.size() > limits.chunk_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload has ", payload.size(), " bytes; allowed are at most ", limits.chunk_bytes_max));
  }
  if (chunk.elements > limits.elements) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk has ", chunk.elements, " elements; the shard has ", limits.elements));
  }
  if (!codec::IsEncodedLength(chunk.codec, chunk.elements, payload.size())) {
    const codec::EncodingFacts& facts = FactsOf(chunk.codec);
    return absl::InvalidArgumentError(absl::StrCat(
        "payload has ", payload.size(), " bytes for ", chunk.elements, " elements as ", codec::ToString(chunk.codec),
        "; allowed are ", facts.sparse ? absl::StrCat("multiples of ", facts.item_bytes, " up to ") : "",
        codec::EncodedBytesMax(chunk.codec, chunk.elements)));
  }
  return absl::OkStatus();
}

absl::Status StagedPush::CheckValues(const Chunk& chunk, const rpc::Payload& payload) {
  const absl::Status status = codec::Checker(chunk.codec, chunk.elements).Add(payload.segments());
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("chunk at element ", chunk.offset, ": ", status.message()));
}

void StagedPush::Append(const Chunk& chunk, const ByteSegments& bytes) {
  if (pieces_.empty() || !FactsOf(chunk.codec).by_element || pieces_.back().codec != chunk.codec) {
    pieces_.push_back({.codec = chunk.codec, .bytes = {}});
  }
  pieces_.back().elements += chunk.elements;
  pieces_.back().bytes.Append(bytes);
}

}  // namespace slackline::ps
