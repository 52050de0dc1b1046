#include "ps/service/shard_cuts.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/log/logging.h"

namespace slackline::ps {

absl::StatusOr<wire::BeginCheckpointReply> ShardCuts::Begin(const wire::BeginCheckpointRequest& request) {
  wire::BeginCheckpointReply reply;
  for (const auto& [id, shard] : shards_) {
    if (!shard->seeded()) return absl::FailedPreconditionError(absl::StrCat("shard ", id, " has no weights yet"));
    const uint64_t version = shard->version().number;
    const bool first = id == shards_.begin()->first;
    reply.set_version_min(first ? version : std::min(reply.version_min(), version));
    reply.set_version_max(std::max(reply.version_max(), version));
  }
  if (request.ask_only()) return reply;
  if (on_cut_ == nullptr) return absl::UnimplementedError("this server writes no checkpoints");
  if (request.folder().empty() || request.checkpoint() == 0) {
    return absl::InvalidArgumentError("a checkpoint needs a number and a folder");
  }
  const std::pair wanted(request.checkpoint(), request.attempt());
  const std::pair known(last_.checkpoint(), last_.attempt());
  if (wanted < known) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint ", wanted.first, " (attempt ", wanted.second,
                                                      "); checkpoint ", known.first, " (attempt ", known.second,
                                                      ") was begun already"));
  }
  if (wanted == known) {
    reply.set_begun(true);
    return reply;
  }
  if (request.has_at_version() && reply.version_max() > request.at_version()) return reply;
  Cut(request);
  reply.set_begun(true);
  return reply;
}

void ShardCuts::Cut(const wire::BeginCheckpointRequest& request) {
  last_.Clear();
  begun_ = time_.Now();
  last_.set_checkpoint(request.checkpoint());
  last_.set_attempt(request.attempt());
  cut_ = {JobId(request.job()), request.checkpoint(), request.attempt(), request.folder(), {}};
  std::optional<uint64_t> version;
  if (request.has_at_version()) version = request.at_version();
  for (const auto& [id, shard] : shards_) {
    shard->CutAt(version, [this](ShardCut cut) {
      cut_.shards.push_back(std::move(cut));
      if (cut_.shards.size() == shards_.size()) on_cut_(std::exchange(cut_, {}));
    });
  }
}

void ShardCuts::Done(uint64_t checkpoint, uint32_t attempt, const CheckpointWriter::Written& written) {
  if (checkpoint != last_.checkpoint() || attempt != last_.attempt()) return;
  last_.set_done(true);
  if (written.ok()) {
    disk_full_said_ = false;
    last_.mutable_files()->Assign(written->begin(), written->end());
    metrics_.checkpoints.Add();
    metrics_.checkpoint_seconds.Observe(absl::ToDoubleSeconds(time_.Now() - begun_));
    return;
  }
  // The scheduler tries again every second while a disk is full: saying so once is enough.
  const bool full = absl::IsResourceExhausted(written.status());
  if (!full || !disk_full_said_) {
    log::Error("cannot write the part of this server for checkpoint ", checkpoint,
               "; training continues: ", std::string(written.status().message()));
  }
  disk_full_said_ = full;
  metrics_.checkpoints_failed.Add();
  last_.set_error(std::string(written.status().message()));
  last_.set_no_room(full);
}

void ShardCuts::Heard(uint64_t checkpoint) {
  if (checkpoint != last_.checkpoint() || !last_.done()) return;
  // The number stays: what is late is still known for that.
  heard_ = checkpoint;
}

void ShardCuts::GiveUp() {
  // A cut that still waits would be one of other shards.
  for (const auto& [id, shard] : shards_) {
    if (shard->awaits_cut()) shard->CutAt(std::nullopt, [](const ShardCut&) {});
  }
  cut_ = {};
}

wire::CheckpointProgress ShardCuts::progress() const {
  if (last_.checkpoint() == heard_) return {};
  wire::CheckpointProgress progress = last_;
  if (progress.done()) return progress;
  for (const auto& [id, shard] : shards_) {
    if (!shard->awaits_cut()) continue;
    progress.set_awaited_shard(id);
    progress.set_awaited_version(shard->engine().version().number);
    break;
  }
  return progress;
}

}  // namespace slackline::ps
