#include "tests/world/faulty_table.h"

#include <algorithm>

#include "absl/algorithm/container.h"

namespace slackline::world {
namespace {

wire::ServerItem ItemOf(uint32_t shard, const ps::Answer& answer) {
  wire::ServerItem item;
  wire::PushAnswer& out = *item.mutable_answer();
  out.set_shard(shard);
  out.set_sequence(answer.sequence.value());
  out.set_outcome(answer.outcome == ps::Outcome::kApplied ? wire::OUTCOME_APPLIED : wire::OUTCOME_DISCARDED);
  ps::ToWire(answer.version, *out.mutable_version());
  return item;
}

}  // namespace

// --- The scheduler ----------------------------------------------------------------------------------------------

absl::Status FaultyTable::Install(const wire::InstallShardsRequest& request) {
  const absl::Status status = ShardTable::Install(request);
  if (status.ok()) generation_ = request.generation();
  return status;
}

absl::StatusOr<wire::SetMembersReply> FaultyTable::SetMembers(const wire::SetMembersRequest& request) {
  wire::SetMembersRequest told = request;
  if (bugs_.keep_the_gone) {
    told.clear_gone();
    for (const auto& [worker, before] : members_) {
      const auto replaces = [id = worker](const wire::Member& member) { return member.worker() == id; };
      if (!request.has_since_epoch() && absl::c_none_of(request.members(), replaces)) *told.add_members() = before;
    }
  }
  absl::StatusOr<wire::SetMembersReply> reply = ShardTable::SetMembers(told);
  if (!reply.ok()) return reply;
  if (!told.has_since_epoch()) members_.clear();
  for (const uint32_t worker : told.gone()) members_.erase(worker);
  for (const wire::Member& member : told.members()) members_[member.worker()] = member;
  std::erase_if(accepted_, [&](const auto& accepted) {
    const ps::Sender& worker = accepted.first.first;
    const auto member = members_.find(worker.worker.value());
    return member == members_.end() || Incarnation(member->second.incarnation()) != worker.incarnation;
  });
  return reply;
}

// --- Workers ----------------------------------------------------------------------------------------------------

std::optional<absl::Status> FaultyTable::Receive(ps::Peer& peer, const std::optional<ps::Sender>& worker,
                                                 const wire::WorkerFrame& frame, const rpc::Payload& payload) {
  if (bugs_ == Bugs()) return ShardTable::Receive(peer, frame, payload);
  wire::WorkerFrame told = frame;
  if (bugs_.take_old_generations) told.set_generation(std::max(frame.generation(), generation_));
  wire::WorkerItem& item = *told.mutable_items(0);
  const bool pushes = item.has_push() && !item.push().seed();
  if (worker && item.has_hello()) Change(*worker, *item.mutable_hello());
  if (worker && item.has_pull()) Change(*worker, *item.mutable_pull());
  if (worker && pushes) Change(*worker, *item.mutable_push());
  if (worker && pushes && accepts()) return Accept(peer, *worker, told, payload);
  return ShardTable::Receive(peer, told, payload);
}

std::optional<ps::ShardSnapshot> FaultyTable::SnapshotOf(uint32_t shard) const {
  if (progress().follows) return std::nullopt;
  return TakeSnapshot(ShardId(shard));
}

std::optional<ps::WorkerClock> FaultyTable::Known(const Stream& stream) const {
  const std::optional<ps::ShardSnapshot> snapshot = SnapshotOf(stream.second);
  if (!snapshot) return std::nullopt;
  const auto known = absl::c_find_if(snapshot->engine.workers,
                                     [&](const ps::WorkerClock& clock) { return clock.sender == stream.first; });
  if (known == snapshot->engine.workers.end()) return std::nullopt;
  return *known;
}

std::optional<Version> FaultyTable::VersionOf(uint32_t shard) const {
  const std::optional<ps::ShardSnapshot> snapshot = SnapshotOf(shard);
  if (!snapshot) return std::nullopt;
  return snapshot->engine.version;
}

// Says by shard what the worker claims, which is the same to the table.
void FaultyTable::Change(const ps::Sender& worker, wire::Hello& hello) {
  for (wire::ShardClock& shard : *hello.mutable_shards()) {
    const Stream stream = {worker, shard.shard()};
    uint64_t claimed = std::max({hello.first_clock(), hello.clock(), shard.last_answered()});
    if (const std::optional<ps::WorkerClock> known = Known(stream)) {
      const uint64_t clock = known->clock.value();
      if (bugs_.no_fast_forward) claimed = std::min(claimed, clock);
      Renamed& renamed = renamed_[stream];
      // The worker says again all pushes after those it claims: the table must take them for others.
      if (bugs_.no_dedupe && claimed + renamed.by < clock) renamed = {clock, clock - claimed};
      claimed += renamed.by;
    }
    if (const auto accepted = accepted_.find(stream); accepted != accepted_.end() && accepted->second.whole) {
      claimed = std::min(claimed, accepted->second.sequence - 1);
    }
    shard.set_last_answered(claimed);
  }
  hello.clear_clock();
}

void FaultyTable::Change(const ps::Sender& worker, wire::PushChunk& chunk) const {
  if (const auto renamed = renamed_.find({worker, chunk.shard()}); renamed != renamed_.end()) {
    chunk.set_sequence(chunk.sequence() + renamed->second.by);
  }
  const std::optional<Version> now = chunk.has_commit() ? VersionOf(chunk.shard()) : std::nullopt;
  if (!now) return;
  wire::Version& base = *chunk.mutable_commit()->mutable_base();
  if (bugs_.ignore_lineage && base.lineage() < now->lineage.value()) {
    base.set_lineage(now->lineage.value());
    base.set_number(std::min(base.number(), now->number));
  }
  if (bugs_.take_late && mode_ == job::Consistency::QUORUM && base.lineage() == now->lineage.value()) {
    base.set_number(std::max(base.number(), now->number));
  }
}

void FaultyTable::Change(const ps::Sender& worker, wire::Pull& pull) const {
  const auto renamed = renamed_.find({worker, pull.shards(0).shard()});
  if (renamed != renamed_.end()) pull.set_clock(pull.clock() + renamed->second.by);
  // A pull in softsync may come without its worker's accepted pushes.
  if (accepts()) pull.set_clock(0);
}

wire::ServerItem FaultyTable::AsSent(const std::optional<ps::Sender>& worker, wire::ServerItem item) const {
  if (!worker || !item.has_answer()) return item;
  wire::PushAnswer& answer = *item.mutable_answer();
  const auto renamed = renamed_.find({*worker, answer.shard()});
  if (renamed == renamed_.end() || answer.sequence() <= renamed->second.above) return item;
  answer.set_sequence(answer.sequence() - renamed->second.by);
  return item;
}

// --- Pushes that are answered before the table has them ---------------------------------------------------------

std::optional<absl::Status> FaultyTable::Accept(ps::Peer& peer, const ps::Sender& worker,
                                                const wire::WorkerFrame& frame, const rpc::Payload& payload) {
  const wire::PushChunk& chunk = frame.items(0).push();
  Accepted& accepted = accepted_[{worker, chunk.shard()}];
  if (chunk.offset() == 0) {
    if (accepted.whole && accepted.sequence != chunk.sequence()) {
      if (std::optional<absl::Status> end = PassOn(peer, accepted)) return end;
    }
    accepted = {.sequence = chunk.sequence()};
  }
  accepted.chunks.emplace_back(frame, payload);
  if (!chunk.has_commit()) return std::nullopt;
  const std::optional<Version> now = VersionOf(chunk.shard());
  // The table alone answers a push that it will not apply.
  if (!now || chunk.commit().base().lineage() != now->lineage.value()) {
    return PassOn(peer, std::exchange(accepted, Accepted()));
  }
  accepted.whole = true;
  peer.Send(ItemOf(chunk.shard(), {.sequence = Sequence(chunk.sequence()), .version = *now}));
  return std::nullopt;
}

std::optional<absl::Status> FaultyTable::PassOn(ps::Peer& peer, const Accepted& accepted) {
  for (const auto& [frame, payload] : accepted.chunks) {
    if (std::optional<absl::Status> end = ShardTable::Receive(peer, frame, payload)) return end;
  }
  return std::nullopt;
}

}  // namespace slackline::world
