#include "worker/group/chunk_plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace slackline::worker {

ChunkPlan::ChunkPlan(std::vector<PlannedChunk> chunks) : chunks_(std::move(chunks)) {
  size_t place = 0;
  uint64_t next = 0;
  for (const PlannedChunk& chunk : chunks_) {
    SLACKLINE_CHECK(chunk.begin >= next && chunk.elements > 0 && chunk.codec.encoding != codec::Encoding::kFp32);
    next = chunk.end();
    places_.push_back(place);
    const size_t bytes = codec::EncodedBytesMax(chunk.codec, chunk.elements);
    place += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  places_.push_back(place);
}

uint64_t ChunkPlan::elements_max() const {
  uint64_t most = 0;
  for (const PlannedChunk& chunk : chunks_) most = std::max(most, chunk.elements);
  return most;
}

size_t ChunkPlan::SizeIn(const std::byte* block, size_t chunk) const {
  const PlannedChunk& planned = chunks_[chunk];
  if (!FactsOf(planned.codec).sparse) {
    return codec::EncodedBytesMax(planned.codec, planned.elements);
  }
  uint64_t pairs = 0;
  std::memcpy(&pairs, block + count_place(chunk), sizeof(pairs));
  const size_t bytes = pairs * codec::Granularity(planned.codec);
  SLACKLINE_CHECK(codec::IsEncodedLength(planned.codec, planned.elements, bytes));
  return bytes;
}

size_t ChunkPlan::FirstFrom(uint64_t from) const {
  const auto first =
      std::lower_bound(chunks_.begin(), chunks_.end(), from,
                       [](const PlannedChunk& chunk, uint64_t element) { return chunk.begin < element; });
  return static_cast<size_t>(first - chunks_.begin());
}

std::vector<Elements> ChunkPlan::PlainIn(const Elements& bucket) const {
  std::vector<Elements> plain;
  uint64_t next = bucket.begin;
  const auto leave_out = [&](const Elements& chunk) {
    if (chunk.begin > next) plain.push_back({next, chunk.begin});
    next = std::max(next, chunk.end);
  };
  // From the chunk that reaches into the bucket on.
  const size_t first = FirstFrom(bucket.begin);
  for (size_t i = first > 0 ? first - 1 : 0; i < chunks_.size() && chunks_[i].begin < bucket.end; ++i) {
    leave_out({chunks_[i].begin, chunks_[i].end()});
  }
  if (next < bucket.end) plain.push_back({next, bucket.end});
  return plain;
}

uint64_t ChunkPlan::ReadyFrom(uint64_t from) const {
  const size_t first = FirstFrom(from);
  return first == 0 ? from : std::max(from, chunks_[first - 1].end());
}

}  // namespace slackline::worker
