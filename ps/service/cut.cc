// The server's part of a checkpoint of the job: its shards are cut where the scheduler wants them to be.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging.h"
#include "ps/service/shard_table.h"

namespace slackline::ps {

absl::StatusOr<wire::BeginCheckpointReply> ShardTable::BeginCheckpoint(const wire::BeginCheckpointRequest& request) {
  if (installed_.empty() || feed_ != nullptr) {
    return absl::UnavailableError("a checkpoint before shards: install the shards first");
  }
  if (absl::Status status = CheckCallee(request.job(), request.server_incarnation()); !status.ok()) return status;
  if (Generation(request.generation()) != generation_) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint of shard map generation ", request.generation(),
                                                      "; the server is at ", generation_.value()));
  }
  for (const auto& [id, host] : hosts_) {
    if (!host->seeded()) return absl::FailedPreconditionError(absl::StrCat("shard ", id, " has no weights yet"));
  }
  const Progress now = progress();
  wire::BeginCheckpointReply reply;
  reply.set_version_min(now.version_min);
  reply.set_version_max(now.version_max);
  if (request.ask_only()) return reply;
  if (hooks_.on_cut == nullptr) return absl::UnimplementedError("this server writes no checkpoints");
  if (request.folder().empty() || request.checkpoint() == 0) {
    return absl::InvalidArgumentError("a checkpoint needs a number and a folder");
  }
  const std::pair wanted(request.checkpoint(), request.attempt());
  const std::pair known(checkpoint_.checkpoint(), checkpoint_.attempt());
  if (wanted < known) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint ", wanted.first, " (attempt ", wanted.second,
                                                      "); checkpoint ", known.first, " (attempt ", known.second,
                                                      ") was begun already"));
  }
  if (wanted == known) {
    reply.set_begun(true);
    return reply;
  }
  if (request.has_at_version() && now.version_max > request.at_version()) return reply;
  BeginCut(request);
  reply.set_begun(true);
  return reply;
}

void ShardTable::BeginCut(const wire::BeginCheckpointRequest& request) {
  checkpoint_.Clear();
  cut_begun_ = time_.Now();
  checkpoint_.set_checkpoint(request.checkpoint());
  checkpoint_.set_attempt(request.attempt());
  cut_ = {JobId(request.job()), request.checkpoint(), request.attempt(), request.folder(), {}};
  std::optional<uint64_t> version;
  if (request.has_at_version()) version = request.at_version();
  for (const auto& [id, host] : hosts_) {
    host->CutAt(version, [this](ShardCut cut) {
      cut_.shards.push_back(std::move(cut));
      if (cut_.shards.size() == hosts_.size()) hooks_.on_cut(std::exchange(cut_, {}));
    });
  }
}

void ShardTable::CheckpointDone(uint64_t checkpoint, uint32_t attempt, const CheckpointWriter::Written& written) {
  if (checkpoint != checkpoint_.checkpoint() || attempt != checkpoint_.attempt()) return;
  checkpoint_.set_done(true);
  if (written.ok()) {
    disk_full_said_ = false;
    checkpoint_.mutable_files()->Assign(written->begin(), written->end());
    metrics_.checkpoints.Add();
    metrics_.checkpoint_seconds.Observe(absl::ToDoubleSeconds(time_.Now() - cut_begun_));
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
  checkpoint_.set_error(std::string(written.status().message()));
  checkpoint_.set_no_room(full);
}

void ShardTable::CheckpointHeard(uint64_t checkpoint) {
  if (checkpoint != checkpoint_.checkpoint() || !checkpoint_.done()) return;
  // The number stays: what is late is still known for that.
  checkpoint_heard_ = checkpoint;
}

wire::CheckpointProgress ShardTable::checkpoint() const {
  if (checkpoint_.checkpoint() == checkpoint_heard_) return {};
  wire::CheckpointProgress progress = checkpoint_;
  if (progress.done()) return progress;
  for (const auto& [id, host] : hosts_) {
    if (!host->awaits_cut()) continue;
    progress.set_awaited_shard(id);
    progress.set_awaited_version(host->engine().version().number);
    break;
  }
  return progress;
}

}  // namespace slackline::ps
