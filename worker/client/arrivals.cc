#include "worker/client/arrivals.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace slackline::worker {

absl::Status Arrivals::Add(ArrivedChunk chunk, absl::Span<float> parameters) {
  const bool begun = !kept_.empty() && kept_.back().id == chunk.id;
  if (!parameters.empty() && !begun) {
    return writer_.Write(chunk.chunk, chunk.bytes.segments(), parameters);
  }
  if (!begun) kept_.push_back({chunk.id, chunk.chunk.version, false, false, {}});
  if (chunk.chunk.offset == 0) kept_.back().chunks.clear();
  if (chunk.lent) chunk.bytes = Own(chunk.bytes);
  kept_.back().chunks.push_back(std::move(chunk));
  return absl::OkStatus();
}

absl::Status Arrivals::Finish(PullId id, Version version, bool unchanged, uint64_t shard_elements) {
  if (kept_.empty() || kept_.back().id != id) {
    return writer_.Finish(version, unchanged, shard_elements);
  }
  kept_.back().version = version;
  kept_.back().unchanged = unchanged;
  kept_.back().finished = true;
  return absl::OkStatus();
}

rpc::Payload Arrivals::Own(const rpc::Payload& lent) {
  auto free = std::find_if(copies_.begin(), copies_.end(), [](const auto& copy) { return copy.use_count() == 1; });
  if (free == copies_.end()) free = copies_.insert(free, std::make_shared<Copy>());
  Copy& copy = **free;
  copy.resize(lent.size());
  ByteReader(lent.segments()).Read(copy.data(), copy.size());
  return rpc::Payload(copy, *free);
}

absl::Status Arrivals::WriteFinished(absl::Span<float> parameters) {
  while (!kept_.empty() && kept_.front().finished) {
    const Kept kept = std::move(kept_.front());
    kept_.pop_front();
    // A later one overwrites it all.
    if (!kept_.empty() && kept_.front().finished && !kept_.front().unchanged) continue;
    for (const ArrivedChunk& chunk : kept.chunks) {
      const absl::Status status = writer_.Write(chunk.chunk, chunk.bytes.segments(), parameters);
      if (!status.ok()) return status;
    }
    const absl::Status status = writer_.Finish(kept.version, kept.unchanged, parameters.size());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Arrivals::WriteBegun(absl::Span<float> parameters) {
  SLACKLINE_CHECK(kept_.size() == 1 && !kept_.back().finished);
  const Kept kept = std::move(kept_.back());
  kept_.pop_back();
  for (const ArrivedChunk& chunk : kept.chunks) {
    const absl::Status status = writer_.Write(chunk.chunk, chunk.bytes.segments(), parameters);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void Arrivals::DropUnfinished() {
  if (!kept_.empty() && !kept_.back().finished) kept_.pop_back();
}

}  // namespace slackline::worker
