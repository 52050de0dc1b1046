#include "worker/client/arrivals.h"

#include <utility>

namespace slackline::worker {

absl::Status Arrivals::Add(ArrivedChunk chunk, absl::Span<float> parameters) {
  const bool begun = !kept_.empty() && kept_.back().id == chunk.id;
  if (!parameters.empty() && !begun) {
    writing_lent_ |= chunk.lent;
    return writer_.Write(chunk.chunk, chunk.bytes.segments(), parameters);
  }
  if (!begun) kept_.push_back({chunk.id, chunk.chunk.version, false, false, {}});
  if (chunk.chunk.offset == 0) kept_.back().chunks.clear();
  kept_.back().chunks.push_back(std::move(chunk));
  return absl::OkStatus();
}

absl::Status Arrivals::Finish(PullId id, Version version, bool unchanged, uint64_t shard_elements) {
  if (kept_.empty() || kept_.back().id != id) {
    NoteRead(id, std::exchange(writing_lent_, false));
    return writer_.Finish(version, unchanged, shard_elements);
  }
  kept_.back().version = version;
  kept_.back().unchanged = unchanged;
  kept_.back().finished = true;
  return absl::OkStatus();
}

void Arrivals::NoteRead(PullId id, bool lent) {
  if (lent) read_.push_back(id);
}

absl::Status Arrivals::WriteFinished(absl::Span<float> parameters) {
  while (!kept_.empty() && kept_.front().finished) {
    const Kept kept = std::move(kept_.front());
    kept_.pop_front();
    bool lent = false;
    for (const ArrivedChunk& chunk : kept.chunks) lent |= chunk.lent;
    NoteRead(kept.id, lent);
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

void Arrivals::DropUnfinished() {
  if (!kept_.empty() && !kept_.back().finished) kept_.pop_back();
  writing_lent_ = false;
}

}  // namespace slackline::worker
