// A shard whose steps are taken elsewhere: the backup's copy.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/byte_segments.h"
#include "common/check.h"
#include "common/checkpoint/shard_file.h"
#include "ps/host/shard_host.h"

namespace slackline::ps {
absl::Status ShardHost::Adopt(const ReadSnapshot& read) {
  absl::StatusOr<EngineState> engine = read(state_);
  if (!engine.ok()) return engine.status();
  replica_ = *std::move(engine);
  version_ = replica_->version;
  for (WorkerClock& worker : std::exchange(replica_->workers, {})) {
    WorkerClock& known = replica_workers_[worker.sender.worker];
    if (known.sender.incarnation <= worker.sender.incarnation) known = std::move(worker);
  }
  for (const Sender& gone : std::exchange(replica_->gone, {})) FollowLeaver(gone);
  return absl::OkStatus();
}

absl::Status ShardHost::Follow(const RecordedStep& step) {
  SLACKLINE_CHECK(replica_ && step.push != nullptr);
  const Version next = {version_.lineage, version_.number + 1};
  if (step.version != next) {
    return absl::InternalError(absl::StrCat("shard ", config_.shard.value(), " follows at version ", ToString(version_),
                                            ", and the step is to version ", ToString(step.version)));
  }
  const Contribution contribution = {step.push->pieces(), step.weight, step.gradient_norm, {}};
  state_.Apply({&contribution, 1}, step.arguments);
  version_ = step.version;
  replica_->version = step.version;
  replica_->samples_applied += step.arguments.samples;
  for (const auto& [sender, answer] : step.answers) Follow(sender, answer);
  return absl::OkStatus();
}

void ShardHost::FollowLeaver(const Sender& sender) {
  Incarnation& newest = replica_gone_[sender.worker];
  newest = std::max(newest, sender.incarnation);
  const auto known = replica_workers_.find(sender.worker);
  if (known != replica_workers_.end() && known->second.sender.incarnation <= newest) replica_workers_.erase(known);
}

bool ShardHost::HasLeft(const Sender& sender) const {
  const auto gone = replica_gone_.find(sender.worker);
  return gone != replica_gone_.end() && sender.incarnation <= gone->second;
}

void ShardHost::Follow(const Sender& sender, const Answer& answer) {
  if (HasLeft(sender)) return;
  WorkerClock& worker = replica_workers_[sender.worker];
  if (worker.sender.incarnation < sender.incarnation) worker = {sender, Clock64(), {}};
  if (worker.sender != sender || answer.sequence <= worker.clock) return;  // of an earlier life, or said again
  worker.clock = answer.sequence;
  worker.answers.push_back(answer);
  if (worker.answers.size() > config_.engine.window_max) worker.answers.pop_front();
}

void ShardHost::Follow(const Sender& sender, Clock64 clock) {
  if (HasLeft(sender)) return;
  WorkerClock& worker = replica_workers_[sender.worker];
  if (worker.sender.incarnation < sender.incarnation) worker = {sender, clock, {}};
  if (worker.sender == sender) worker.clock = std::max(worker.clock, clock);
}

uint64_t ShardHost::Checksum() const {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  const ShardView view = state_.Snapshot();
  uint64_t sum = version_.number;
  for (size_t chunk = 0; chunk < view.weights.chunks(); ++chunk) {
    const absl::Span<const std::byte> bytes = AsBytes(view.weights.chunk(chunk));
    sum = sum * kOdd + checkpoint::ChecksumOf({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return sum;
}

absl::Status ShardHost::Compare(const Version& version, uint64_t checksum) const {
  SLACKLINE_CHECK(replica_);
  const uint64_t here = Checksum();
  if (version == version_ && checksum == here) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("shard ", config_.shard.value(), " is at version ", ToString(version_),
                                          " with checksum ", absl::Hex(here), " here, and at version ",
                                          ToString(version), " with ", absl::Hex(checksum), " there"));
}

void ShardHost::Promote(Lineage lineage) {
  SLACKLINE_CHECK(replica_);
  Clock64 slowest(UINT64_MAX);
  for (auto& [id, worker] : std::exchange(replica_workers_, {})) {
    slowest = std::min(slowest, worker.clock);
    replica_->workers.push_back(std::move(worker));
  }
  for (const auto& [id, newest] : std::exchange(replica_gone_, {})) replica_->gone.push_back({id, newest});
  // Whoever was not heard of yet begins with the slowest of the others.
  if (!replica_->workers.empty()) replica_->clock_floor = std::max(replica_->clock_floor, slowest);
  engine_.Restore(*std::exchange(replica_, std::nullopt), lineage);
  version_ = engine_.version();
  FirstSnapshotTried();
}

}  // namespace slackline::ps
