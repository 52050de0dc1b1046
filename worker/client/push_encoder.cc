#include "worker/client/push_encoder.h"

#include <algorithm>
#include <utility>

#include "common/byte_segments.h"
#include "common/check.h"
#include "common/codec/encode.h"

namespace slackline::worker {
namespace {

constexpr CodecRun kRest{UINT64_MAX, {}, false};

// Elements of a chunk: a multiple of int8's blocks where there are enough of them.
uint64_t ChunkElementsMax(const codec::Codec& codec, uint64_t chunk_bytes) {
  SLACKLINE_CHECK(chunk_bytes >= codec::kInt8BlockBytes);
  // The largest power of two that fits, then what is left above it.
  uint64_t elements = 0;
  for (uint64_t more = PushEncoder::kChunkElementsMax; more > 0; more /= 2) {
    const bool fits = codec::EncodedBytesMax(codec, elements + more) <= chunk_bytes;
    if (fits && elements + more <= PushEncoder::kChunkElementsMax) elements += more;
  }
  return elements > codec::kInt8BlockElements ? elements / codec::kInt8BlockElements * codec::kInt8BlockElements
                                              : elements;
}

// Cuts [offset, offset + run.elements) of a shard into chunks of about one size.
void CutRun(uint64_t offset, const CodecRun& run, uint64_t chunk_bytes, std::vector<PushEncoder::Push::Chunk>& chunks) {
  const uint64_t most = ChunkElementsMax(run.codec, chunk_bytes);
  const uint64_t pieces = (run.elements + most - 1) / most;
  const uint64_t even = (run.elements + pieces - 1) / pieces;
  constexpr uint64_t kBlock = codec::kInt8BlockElements;
  const uint64_t size = std::min(most, (even + kBlock - 1) / kBlock * kBlock);
  for (uint64_t begin = 0; begin < run.elements; begin += size) {
    chunks.push_back({offset + begin, std::min(size, run.elements - begin), run, nullptr, 0});
  }
}

}  // namespace

PushEncoder::PushEncoder(std::vector<CodecRun> runs) : runs_(std::move(runs)) {}

bool PushEncoder::lossy() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const CodecRun& run) { return run.lossy(); });
}

PushEncoder::Push PushEncoder::Cut(uint64_t begin, absl::Span<const float> values, uint64_t chunk_bytes) const {
  Push push;
  push.begin_ = begin;
  push.values_ = values;
  uint64_t offset = 0;  // from the shard's beginning
  uint64_t run_begin = 0;
  const auto cut = [&](CodecRun run) {
    // What of the run lies in the rest of the shard.
    const uint64_t passed = std::min(run.elements, begin + offset - run_begin);
    run_begin += run.elements;
    run.elements = std::min(run.elements - passed, values.size() - offset);
    if (run.elements == 0) return;
    CutRun(offset, run, chunk_bytes, push.chunks_);
    offset += run.elements;
  };
  for (const CodecRun& run : runs_) cut(run);
  cut(kRest);
  return push;
}

absl::Span<float> PushEncoder::ResidualOf(const Push& push, const Push::Chunk& chunk) {
  if (!chunk.run.lossy() || !chunk.run.error_feedback) return {};
  if (residual_.empty()) {
    uint64_t elements = 0;
    for (const CodecRun& run : runs_) elements += run.elements;
    residual_.assign(elements, 0);
  }
  return absl::MakeSpan(residual_).subspan(push.begin_ + chunk.offset, chunk.elements);
}

const PushEncoder::Push::Chunk& PushEncoder::Encode(Push& push, size_t index) {
  Push::Chunk& chunk = push.chunks_[index];
  SLACKLINE_CHECK(chunk.run.lossy());
  if (chunk.bytes != nullptr) return chunk;
  const uint64_t room = codec::EncodedBytesMax(chunk.run.codec, chunk.elements);
  chunk.bytes = std::make_shared_for_overwrite<std::byte[]>(room);
  const absl::Span<std::byte> out(chunk.bytes.get(), room);
  const absl::Span<float> residual = ResidualOf(push, chunk);
  chunk.size = residual.empty() ? codec::Encode(chunk.run.codec, push.values(index), out)
                                : codec::EncodeWithFeedback(chunk.run.codec, push.values(index), residual, out);
  return chunk;
}

void PushEncoder::Return(const Push& push) {
  for (size_t i = 0; i < push.chunks_.size(); ++i) {
    const Push::Chunk& chunk = push.chunks_[i];
    const absl::Span<float> residual = ResidualOf(push, chunk);
    if (residual.empty()) continue;
    if (chunk.bytes != nullptr) {
      codec::ReturnToResidual(chunk.run.codec, {chunk.bytes.get(), chunk.size}, residual);
    } else {
      codec::ReturnToResidual({.encoding = codec::Encoding::kFp32}, AsBytes(push.values(i)), residual);
    }
  }
}

}  // namespace slackline::worker
