// Callers and their pushes; what the engine makes of them is in shard_host_actions.cc.
#include "ps/host/shard_host.h"

#include <algorithm>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/byte_segments.h"
#include "common/base/check.h"
#include "common/checkpoint/shard_file.h"
#include "common/codec/wire_encoding.h"
#include "common/log/logging.h"
#include "ps/shard/learning_rates.h"
#include "ps/shard/push_norm.h"

namespace slackline::ps {
namespace {

// Keeps weights n_i / n_nominal within what float32 steps survive.
constexpr uint64_t kSamplesMax = uint64_t{1} << 30;

absl::Status CheckTrailer(const wire::PushCommit& commit, size_t groups) {
  if (!commit.has_base()) return absl::InvalidArgumentError("commit names no base version");
  if (commit.samples() < 1 || commit.samples() > kSamplesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("commit says ", commit.samples(), " samples; allowed are 1 to ", kSamplesMax));
  }
  if (!std::isfinite(commit.gradient_norm()) || commit.gradient_norm() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient_norm is ", commit.gradient_norm(), "; allowed is a finite number from 0"));
  }
  if (!std::isfinite(commit.loss())) {
    return absl::InvalidArgumentError(absl::StrCat("loss is ", commit.loss(), "; allowed is a finite number"));
  }
  if (absl::Status parts = PartPositions::Check(commit.data()); !parts.ok()) return parts;
  return CheckLearningRates(commit.learning_rates(), groups);
}

// Superseded versions that may be held at a time.
size_t VersionsHeld(const ShardConfig& config) {
  return config.pinned_versions_max + config.references_max + (config.snapshots ? 1 : 0);
}

// Room for the version that is written and those that are held. Null where the system has none: the heap does.
std::shared_ptr<shm::Segment> MakeSegment(const ShardConfig& config) {
  const SliceShape shape = {.elements = config.extent.size(), .chunk_elements = config.chunk_elements};
  const uint64_t bytes = Slice::SegmentBytes(shape, VersionsHeld(config) + 1);
  if (!config.shared_memory || bytes == 0) return nullptr;
  auto segment = shm::Segment::Create({.name = absl::StrCat("slackline-shard-", config.shard.value()), .bytes = bytes});
  if (segment.ok()) return *std::move(segment);
  log::Warning("shard ", config.shard.value(), ": cannot share memory; workers pull its weights through a socket: ",
               std::string(segment.status().message()));
  return nullptr;
}

}  // namespace

ShardHost::ShardHost(ShardConfig config, StagingBudget& budget, ServiceMetrics& metrics, const TimeSource& time)
    : config_(std::move(config)),
      budget_(budget),
      metrics_(metrics),
      time_(time),
      engine_(config_.engine),
      segment_(MakeSegment(config_)),
      state_(config_.extent, config_.optimizer, config_.groups, config_.chunk_elements,
             {.segment = segment_, .versions_kept = segment_ == nullptr ? 1 : VersionsHeld(config_)}),
      version_(engine_.version()),
      references_(config_.references_max),
      repeats_(engine_),
      pinned_(config_.pinned_versions_max, config_.on_unpinned),
      followed_(config_.engine.window_max),
      awaits_snapshot_(config_.snapshots) {}

// --- Snapshots --------------------------------------------------------------------------------------------------

ShardSnapshot ShardHost::Snapshot() const {
  SLACKLINE_CHECK(state_.seeded() && version_ == engine_.version());
  return {state_.Snapshot(), engine_.Snapshot(), absl::Now()};
}

absl::Status ShardHost::Restore(const ReadSnapshot& read, Lineage lineage) {
  const absl::StatusOr<EngineState> engine = read(state_);
  if (!engine.ok()) return engine.status();
  engine_.Restore(*engine, lineage);
  version_ = engine_.version();
  return absl::OkStatus();
}

void ShardHost::CutAt(std::optional<uint64_t> version, std::function<void(ShardCut)> take) {
  SLACKLINE_CHECK(state_.seeded() && version.value_or(version_.number) >= version_.number);
  take_cut_ = std::move(take);
  cut_at_ = version.value_or(version_.number);
  if (cut_at_ == version_.number) TakeCut();
}

void ShardHost::TakeCut() {
  ShardCut cut = {.shard = config_.shard,
                  .extent = config_.extent,
                  .arrays = state_.arrays(),
                  .numbers = state_.Snapshot(),
                  .version = version_,
                  .engine_samples = engine_.samples_applied(),
                  .clock_min = engine_.clock_min()};
  std::exchange(take_cut_, nullptr)(std::move(cut));
}

void ShardHost::FirstSnapshotTried() {
  if (std::exchange(awaits_snapshot_, false)) Retry();
}

// --- Streams ----------------------------------------------------------------------------------------------------

absl::StatusOr<wire::ShardState> ShardHost::Hello(const Caller& caller, const HelloEvent& hello) {
  Actions actions;
  if (absl::Status status = engine_.Hello(hello, actions); !status.ok()) return status;
  Execute(actions);
  // Only now: nothing goes to a new stream before its Welcome. An answer missed by that is asked for again.
  members_[caller.sender] = Member{caller.peer, {}};
  wire::ShardState state = Greet();
  state.set_last_answered(engine_.clock(caller.sender.worker).value_or(Clock64()).value());
  if (const auto gap = lost_.find(caller.sender); gap != lost_.end()) {
    state.set_lost(gap->second.to.value() - gap->second.from.value());
    state.set_lost_to(gap->second.to.value());
  }
  if (journal_ != nullptr) journal_->Joined(config_.shard, caller.sender, Clock64(state.last_answered()));
  return state;
}

wire::ShardState ShardHost::Greet() const {
  wire::ShardState state;
  state.set_shard(config_.shard.value());
  ToWire(version_, *state.mutable_version());
  state.set_seeded(state_.seeded());
  return state;
}

void ShardHost::Disconnected(const Caller& caller) {
  arriving_.erase(caller.peer);
  repeats_.Forget(caller.peer);
  Forget(caller.peer);
  if (Find(caller.sender) != caller.peer) return;  // a reader, or the worker has a newer stream
  members_.erase(caller.sender);
  engine_.Disconnected(caller.sender);
}

Peer* ShardHost::Find(const Sender& sender) const {
  const auto member = members_.find(sender);
  return member == members_.end() ? nullptr : member->second.peer;
}

absl::Status ShardHost::SetMembers(const MemberSet& set) {
  Actions actions;
  const std::vector<Sender> out = engine_.PutOutBy(set);
  const PartPositions::Gone positions = part_positions_.Of(out, engine_);
  absl::Status status = engine_.SetMembers(set, actions);
  Execute(actions);
  if (!status.ok()) return status;
  part_positions_.Installed(set.epoch, positions);
  references_.Forget(out);
  for (const Sender& sender : out) {
    lost_.erase(sender);
    set_.erase(sender);
    if (journal_ != nullptr) journal_->Left(config_.shard, sender);
  }
  for (const MemberEntry& member : set.members) {
    if (!engine_.IsMember(member.sender) || !set_.insert(member.sender).second || journal_ == nullptr) continue;
    journal_->Joined(config_.shard, member.sender, engine_.clock(member.sender.worker).value_or(Clock64()));
  }
  return status;
}

std::vector<std::pair<Sender, Clock64>> ShardHost::MemberClocks() const {
  std::vector<std::pair<Sender, Clock64>> clocks;
  for (const Sender& sender : set_) clocks.emplace_back(sender, engine_.clock(sender.worker).value_or(Clock64()));
  return clocks;
}

void ShardHost::SetStalenessBound(uint64_t bound) {
  Actions actions;
  engine_.SetStalenessBound(bound, actions);
  Execute(actions);
}

// --- Pushes -----------------------------------------------------------------------------------------------------

void ShardHost::Push(const Caller& caller, const wire::PushChunk& chunk, rpc::Payload payload) {
  if (chunk.offset() == 0) Begin(caller, chunk);
  const auto found = arriving_.find(caller.peer);
  if (found == arriving_.end() || found->second.sequence.value() != chunk.sequence() ||
      found->second.seed != chunk.seed() || found->second.shared_memory != chunk.has_segment_offset()) {
    return Refuse(*caller.peer, chunk,
                  absl::InvalidArgumentError(absl::StrCat("chunk at element ", chunk.offset(), " of push ",
                                                          chunk.sequence(), ", which was not begun at element 0")));
  }
  Arriving& arriving = found->second;
  if (arriving.fate == Fate::kSwallow && !arriving.to_be_repeated) caller.peer->Wasted();
  if (arriving.fate == Fate::kStage) {
    const absl::Status status = Stage(chunk, std::move(payload), arriving);
    if (!status.ok()) {
      arriving.fate = Fate::kSwallow;
      arriving.staged = StagedPush();
      Refuse(*caller.peer, chunk, status);
    }
  }
  if (!chunk.has_commit()) return;
  Arriving complete = std::move(arriving);
  arriving_.erase(found);
  if (complete.fate != Fate::kSwallow) Commit(caller, chunk, std::move(complete));
}

bool ShardHost::CopiesPushes() const {
  const bool kept_after_answer = FactsOf(config_.engine.mode, config_.engine.count_late).answers_first;
  const bool measured_first = config_.engine.outlier_factor > 0;
  const bool sent_to_backup = journal_ != nullptr && journal_->Follows(config_.shard);
  return kept_after_answer || measured_first || sent_to_backup;
}

absl::Status ShardHost::Stage(const wire::PushChunk& chunk, rpc::Payload payload, Arriving& arriving) const {
  const absl::StatusOr<codec::Codec> codec = CodecFromWire(chunk.encoding());
  if (!codec.ok()) return codec.status();
  if (codec->encoding != codec::Encoding::kFp32 && (chunk.seed() || chunk.has_segment_offset())) {
    return absl::InvalidArgumentError(absl::StrCat(chunk.seed() ? "initial weights" : "a chunk in shared memory",
                                                   " as ", codec::ToString(*codec), "; allowed is fp32"));
  }
  return arriving.staged.Add({chunk.offset(), chunk.elements(), *codec, chunk.has_commit(), arriving.copied},
                             {chunk.seed() ? config_.extent.size() : config_.extent.pushed(),
                              chunk.has_segment_offset() ? UINT64_MAX : config_.chunk_bytes_max},
                             std::move(payload));
}

void ShardHost::Begin(const Caller& caller, const wire::PushChunk& chunk) {
  arriving_.erase(caller.peer);  // begun anew: what came of the last one is dropped
  absl::StatusOr<Arriving> admitted = chunk.seed() ? AdmitSeed(caller, chunk) : Admit(caller, chunk);
  if (!admitted.ok()) {
    Refuse(*caller.peer, chunk, admitted.status());
    const bool later = absl::IsResourceExhausted(admitted.status()) || absl::IsUnavailable(admitted.status());
    if (later && !chunk.seed()) repeats_.Note(caller, Sequence(chunk.sequence()));
    admitted = Arriving{Sequence(), false, Fate::kSwallow, StagedPush()};
    admitted->to_be_repeated = later;
  }
  admitted->sequence = Sequence(chunk.sequence());
  admitted->seed = chunk.seed();
  admitted->shared_memory = chunk.has_segment_offset();
  admitted->copied = chunk.has_segment_offset() && (chunk.seed() || CopiesPushes());
  arriving_[caller.peer] = *std::move(admitted);
}

absl::StatusOr<ShardHost::Arriving> ShardHost::Admit(const Caller& caller, const wire::PushChunk& chunk) {
  const Sequence sequence(chunk.sequence());
  if (caller.reader) return absl::InvalidArgumentError("a reader cannot push");
  if (sequence == Sequence()) return absl::InvalidArgumentError("push has sequence 0; numbers begin at 1");
  switch (engine_.Admit(caller.sender, sequence)) {
    case Engine::Admission::kIgnore:
      return Arriving{sequence, false, Fate::kAnswer, StagedPush()};
    case Engine::Admission::kRefuse: {
      // It was on its way when the one before it was refused for now: no gap that the worker could help.
      if (const std::optional<Sequence> first = repeats_.Before(caller, sequence)) {
        return absl::UnavailableError(absl::StrCat("push ", sequence.value(), " came after push ", first->value(),
                                                   ", which was refused; repeat both"));
      }
      // The engine says why itself.
      Actions actions;
      engine_.Push({caller.sender, sequence, version_, 1, time_.Now()}, actions);
      Execute(actions);
      return Arriving{sequence, false, Fate::kSwallow, StagedPush()};
    }
    case Engine::Admission::kStage:
      break;
  }
  if (!state_.seeded()) return absl::AbortedError("the shard has no initial weights yet; pull before pushing");
  const Clock64 clock = engine_.clock(caller.sender.worker).value_or(Clock64());
  const uint64_t untold = journal_ == nullptr ? 0 : journal_->Untold(config_.shard, caller.sender);
  if (sequence.value() - clock.value() + untold > caller.window) {
    return absl::ResourceExhaustedError(absl::StrCat("push ", sequence.value(), ": pushes from ",
                                                     clock.value() - std::min(clock.value(), untold) + 1,
                                                     " on are unanswered, the window allows ", caller.window));
  }
  // What stays in the worker's segment takes none of this process's memory.
  const bool lent = chunk.has_segment_offset() && !CopiesPushes();
  absl::StatusOr<StagingBudget::Reservation> room = budget_.Reserve(lent ? 0 : config_.extent.pushed() * sizeof(float));
  if (!room.ok()) return room.status();
  return Arriving{sequence, false, Fate::kStage, StagedPush(*std::move(room))};
}

void ShardHost::Commit(const Caller& caller, const wire::PushChunk& chunk, Arriving arriving) {
  if (arriving.seed) return CommitSeed(caller, std::move(arriving));
  const wire::PushCommit& commit = chunk.commit();
  if (absl::Status status = CheckTrailer(commit, config_.optimizer.groups.size()); !status.ok())
    return Refuse(*caller.peer, chunk, status);
  const bool stage = engine_.Admit(caller.sender, arriving.sequence) == Engine::Admission::kStage;
  if (stage && arriving.fate != Fate::kStage) {
    repeats_.Note(caller, arriving.sequence);
    return Refuse(*caller.peer, chunk, absl::UnavailableError("the shard has changed under this push; repeat it"));
  }
  double part_norm = 0;
  if (stage) {
    part_positions_.Pushed({caller.sender, arriving.sequence}, commit.data(),
                           engine_.clock(caller.sender.worker).value_or(Clock64()));
    if (config_.engine.outlier_factor > 0) part_norm = PushNorm(arriving.staged.pieces(), config_.extent.trained);
    held_[{caller.sender, arriving.sequence}] =
        Held{std::move(arriving.staged), commit.gradient_norm(),
             std::vector<double>(commit.learning_rates().begin(), commit.learning_rates().end()),
             arriving.shared_memory && !arriving.copied,
             config_.references_max > 0 ? References::Use(&references_, FromWire(commit.base())) : References::Use()};
  }
  Actions actions;
  engine_.Push({caller.sender, arriving.sequence, FromWire(commit.base()), commit.samples(), time_.Now(),
                commit.gradient_norm(), part_norm},
               actions);
  pushing_ = caller.sender.worker;
  Execute(actions);
  pushing_.reset();
}

// --- Initial weights --------------------------------------------------------------------------------------------

absl::StatusOr<ShardHost::Arriving> ShardHost::AdmitSeed(const Caller& caller, const wire::PushChunk& chunk) {
  if (caller.reader) return absl::InvalidArgumentError("a reader cannot send initial weights");
  if (chunk.sequence() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("initial weights have sequence ", chunk.sequence(), "; allowed is 0"));
  }
  if (state_.seeded()) return Arriving{Sequence(), true, Fate::kAnswer, StagedPush()};
  absl::StatusOr<StagingBudget::Reservation> room = budget_.Reserve(config_.extent.size() * sizeof(float));
  if (!room.ok()) return room.status();
  return Arriving{Sequence(), true, Fate::kStage, StagedPush(*std::move(room))};
}

void ShardHost::CommitSeed(const Caller& caller, Arriving arriving) {
  const bool take = arriving.fate == Fate::kStage && !state_.seeded();
  // Encoding, length and values were checked as they came, and nobody else can write there.
  if (take) {
    ByteSegments weights;
    for (const EncodedPiece& piece : arriving.staged.pieces()) weights.Append(piece.bytes);
    SLACKLINE_CHECK(state_.Seed(weights).ok());
  }
  wire::ServerItem item;
  wire::PushAnswer& answer = *item.mutable_answer();
  answer.set_shard(config_.shard.value());
  answer.set_outcome(take ? wire::OUTCOME_APPLIED : wire::OUTCOME_DISCARDED);
  answer.set_reason(take ? wire::DISCARD_NONE : wire::DISCARD_SEEDED);
  ToWire(version_, *answer.mutable_version());
  answer.set_clock_min(engine_.clock_min().value());
  caller.peer->Send(item);
  if (!take) return;
  if (config_.on_seeded != nullptr) config_.on_seeded();
  Retry();
}

void ShardHost::Refuse(Peer& peer, const wire::PushChunk& chunk, const absl::Status& status) {
  metrics_.Refused(status.code());
  wire::ServerItem item;
  wire::Refused& refused = *item.mutable_refused();
  refused.set_code(static_cast<uint32_t>(status.code()));
  refused.set_message(absl::StrCat("shard ", config_.shard.value(), ": ", status.message()));
  refused.set_shard(config_.shard.value());
  refused.set_sequence(chunk.sequence());
  peer.Send(item);
}

// --- A shard whose steps are taken elsewhere: the backup's copy ---

absl::Status ShardHost::Adopt(const ReadSnapshot& read) {
  absl::StatusOr<EngineState> engine = read(state_);
  if (!engine.ok()) return engine.status();
  version_ = engine->version;
  followed_.Adopt(*std::move(engine));
  return absl::OkStatus();
}

absl::Status ShardHost::Follow(const JournalStep& step) {
  SLACKLINE_CHECK(followed_.adopted() && step.push != nullptr);
  const Version next = {version_.lineage, version_.number + 1};
  if (step.version != next) {
    return absl::InternalError(absl::StrCat("shard ", config_.shard.value(), " follows at version ", ToString(version_),
                                            ", and the step is to version ", ToString(step.version)));
  }
  const Contribution contribution = {step.push->pieces(), step.weight, step.gradient_norm, {}};
  state_.Apply({&contribution, 1}, step.arguments);
  version_ = step.version;
  followed_.Stepped(step.version, step.arguments.samples);
  for (const auto& [sender, answer] : step.answers) followed_.Answered(sender, answer);
  return absl::OkStatus();
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
  SLACKLINE_CHECK(followed_.adopted());
  const uint64_t here = Checksum();
  if (version == version_ && checksum == here) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("shard ", config_.shard.value(), " is at version ", ToString(version_),
                                          " with checksum ", absl::Hex(here), " here, and at version ",
                                          ToString(version), " with ", absl::Hex(checksum), " there"));
}

void ShardHost::Promote(Lineage lineage) {
  SLACKLINE_CHECK(followed_.adopted());
  engine_.Restore(followed_.Finish(), lineage);
  version_ = engine_.version();
  FirstSnapshotTried();
}

}  // namespace slackline::ps
