#include "worker/client/push_encoder.h"

#include <algorithm>
#include <utility>

#include "common/base/byte_segments.h"
#include "common/base/check.h"
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
    chunks.push_back({.offset = offset + begin, .elements = std::min(size, run.elements - begin), .run = run});
  }
}

PlannedChunk AsPlanned(uint64_t begin, const PushEncoder::Push::Chunk& chunk) {
  return {.begin = begin + chunk.offset,
          .elements = chunk.elements,
          .codec = chunk.run.codec,
          .error_feedback = chunk.run.error_feedback};
}

std::vector<PlannedChunk>::const_iterator FirstFrom(const std::vector<PlannedChunk>& chunks, uint64_t begin) {
  return std::lower_bound(chunks.begin(), chunks.end(), begin,
                          [](const PlannedChunk& chunk, uint64_t element) { return chunk.begin < element; });
}

}  // namespace

PushEncoder::PushEncoder(std::vector<CodecRun> runs, DevicePlan device)
    : runs_(std::move(runs)), device_(std::move(device)) {}

bool PushEncoder::lossy() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const CodecRun& run) { return run.lossy(); });
}

std::vector<PushEncoder::Push::Chunk> PushEncoder::CutRuns(uint64_t begin, uint64_t end, uint64_t chunk_bytes) const {
  std::vector<Push::Chunk> chunks;
  const uint64_t size = end - begin;
  uint64_t offset = 0;  // from the shard's beginning
  uint64_t run_begin = 0;
  const auto cut = [&](CodecRun run) {
    // What of the run lies in the rest of the shard.
    const uint64_t passed = std::min(run.elements, begin + offset - run_begin);
    run_begin += run.elements;
    run.elements = std::min(run.elements - passed, size - offset);
    if (run.elements == 0) return;
    CutRun(offset, run, chunk_bytes, chunks);
    offset += run.elements;
  };
  for (const CodecRun& run : runs_) cut(run);
  cut(kRest);
  return chunks;
}

PushEncoder::Push PushEncoder::Cut(uint64_t begin, absl::Span<const float> values, uint64_t chunk_bytes) const {
  Push push;
  push.begin_ = begin;
  push.values_ = values;
  push.chunks_ = CutRuns(begin, begin + values.size(), chunk_bytes);
  if (!OnDevice(begin, begin + values.size())) return push;
  auto planned = FirstFrom(device_.chunks, begin);
  for (Push::Chunk& chunk : push.chunks_) {
    if (!chunk.run.lossy()) continue;
    // The host could not encode it instead.
    SLACKLINE_CHECK(planned != device_.chunks.end() && *planned == AsPlanned(begin, chunk));
    chunk.planned = static_cast<size_t>(planned++ - device_.chunks.begin());
  }
  return push;
}

std::vector<PlannedChunk> PushEncoder::PlanChunks(uint64_t begin, uint64_t end, uint64_t chunk_bytes) const {
  std::vector<PlannedChunk> planned;
  for (const Push::Chunk& chunk : CutRuns(begin, end, chunk_bytes)) {
    if (chunk.run.lossy()) planned.push_back(AsPlanned(begin, chunk));
  }
  return planned;
}

bool PushEncoder::OnDevice(uint64_t begin, uint64_t end) const {
  const auto first = FirstFrom(device_.chunks, begin);
  return first != device_.chunks.end() && first->begin < end;
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
  if (chunk.planned) {
    EncodedBytes made = TakeFromDevice(push, chunk);
    chunk.bytes = std::move(made.bytes);
    chunk.size = made.size;
    return chunk;
  }
  const uint64_t room = codec::EncodedBytesMax(chunk.run.codec, chunk.elements);
  const auto bytes = std::make_shared_for_overwrite<std::byte[]>(room);
  const absl::Span<std::byte> out(bytes.get(), room);
  const absl::Span<float> residual = ResidualOf(push, chunk);
  chunk.size = residual.empty() ? codec::Encode(chunk.run.codec, push.values(index), out)
                                : codec::EncodeWithFeedback(chunk.run.codec, push.values(index), residual, out);
  chunk.bytes = bytes;
  return chunk;
}

// Its steps are known by where they write.
EncodedBytes PushEncoder::TakeFromDevice(const Push& push, const Push::Chunk& chunk) const {
  return device_.encoder->Take(push.values_.data() - push.begin_, *chunk.planned);
}

void PushEncoder::Return(const Push& push) {
  for (size_t i = 0; i < push.chunks_.size(); ++i) {
    const Push::Chunk& chunk = push.chunks_[i];
    if (chunk.planned) {
      if (!chunk.run.error_feedback) continue;
      // It was encoded, whether it has gone out or not.
      const EncodedBytes made =
          chunk.bytes != nullptr ? EncodedBytes{chunk.bytes, chunk.size} : TakeFromDevice(push, chunk);
      device_.encoder->Return(*chunk.planned, made);
      continue;
    }
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
