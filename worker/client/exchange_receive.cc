// The part of Exchange that listens: what each frame from a server means.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/protocol_version.h"
#include "common/codec/wire_encoding.h"
#include "common/rpc/channel.h"
#include "common/shm/host.h"
#include "worker/client/exchange.h"

namespace slackline::worker {
namespace {

// Of those that a restore may turn out to have lost.
constexpr size_t kDiscardedMax = 4096;

absl::Status Named(const std::string& server, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(server, ": ", status.message()));
}

}  // namespace

std::string Exchange::AddressOf(const ServerInfo& server) const {
  const bool local = options_.same_host != SameHost::kTcp && !server.socket.empty() && !server.host.empty() &&
                     server.host == shm::SocketScope();
  return local ? rpc::UnixAddress(server.socket) : server.address;
}

void Exchange::JoinMemory(Peer& peer) {
  peer.memory.reset();
  peer.memory_agreed = false;
  if (!MayShareMemory(peer.info, options_)) return;
  // The only wait of this thread: for a process of this host, before a stream to it is open.
  auto memory = SharedMemory::Join(peer.info, options_, options_.timeouts.notice());
  if (memory.ok()) {
    peer.memory = *std::move(memory);
  } else if (options_.on_notice) {
    options_.on_notice(
        absl::StrCat("no shared memory with ", watch_.name(peer.stream->index()), ": ", memory.status().message()));
  }
}

wire::Hello Exchange::MakeHello(ServerStream& stream) {
  Peer& peer = peers_[stream.index()];
  JoinMemory(peer);
  wire::Hello hello = worker::MakeHello(options_, session_, peer.shards);
  if (peer.memory != nullptr) hello.set_segment_token(peer.memory->token());
  return hello;
}

absl::Status Exchange::CheckWelcome(const Peer& peer, const wire::Welcome& welcome) const {
  if (absl::Status speaks = CheckProtocol("it", ProtocolOf(welcome)); !speaks.ok()) return speaks;
  for (const InFlight& step : steps_) {
    if (absl::Status takes = CheckTakesRates(step.info, ProtocolOf(welcome).minor); !takes.ok()) return takes;
  }
  uint64_t least = encoder_.lossy() ? codec::kInt8BlockBytes : sizeof(float);
  for (ShardId id : peer.shards) {
    // What a device encodes was cut before.
    const ShardInfo& shard = shards_[id.value()].info;
    if (encoder_.OnDevice(shard.begin, shard.end)) least = std::max<uint64_t>(least, options_.chunk_bytes);
  }
  if (welcome.chunk_bytes_max() < least) {
    return absl::InternalError(
        absl::StrCat("takes chunks of ", welcome.chunk_bytes_max(), " bytes; at least ", least, " are needed"));
  }
  for (ShardId id : peer.shards) {
    const bool held = std::any_of(welcome.shards().begin(), welcome.shards().end(),
                                  [&](const wire::ShardState& state) { return state.shard() == id.value(); });
    if (!held) {
      return absl::FailedPreconditionError(
          absl::StrCat("does not hold shard ", id.value(), " of shard map generation ", map_.generation.value()));
    }
  }
  return absl::OkStatus();
}

absl::Status Exchange::CheckTakesRates(const PushInfo& info, uint32_t minor) {
  if (info.learning_rates.empty() || minor >= kMinorOfLearningRates) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("speaks protocol 1.", minor,
                                               " and would ignore the learning rate of a push; allowed is 1.",
                                               kMinorOfLearningRates, " and newer: start a newer server"));
}

uint64_t Exchange::NewlyLost(Shard& shard, const wire::ShardState& state) const {
  // Each Welcome says it again, and a server that died twice may count some again.
  const uint64_t to = std::min(state.lost_to(), session_.last_answered(shard.info.shard).value());
  if (to <= shard.lost_to) return 0;
  const uint64_t from = std::max(state.lost_to() - std::min(state.lost_to(), state.lost()), shard.lost_to);
  shard.lost_to = to;
  const auto never_applied =
      static_cast<uint64_t>(std::count_if(shard.discarded.begin(), shard.discarded.end(),
                                          [&](uint64_t sequence) { return from < sequence && sequence <= to; }));
  std::erase_if(shard.discarded, [&](uint64_t sequence) { return sequence <= to; });
  return to - std::min(to, from + never_applied);
}

void Exchange::Opened(ServerStream& stream, const wire::Welcome& welcome) {
  Peer& peer = peers_[stream.index()];
  const absl::Status check = CheckWelcome(peer, welcome);
  if (!check.ok()) return Fail(Named(watch_.name(stream.index()), check));
  peer.chunk_bytes = std::min<uint64_t>(options_.chunk_bytes, welcome.chunk_bytes_max());
  peer.minor = ProtocolOf(welcome).minor;
  peer.memory_agreed = welcome.shared_memory() && peer.memory != nullptr;
  if (!peer.memory_agreed) peer.memory.reset();
  const bool tcp = AddressOf(peer.info) == peer.info.address;
  std::string way = peer.memory_agreed ? "shared memory" : tcp ? "TCP" : "a Unix socket";
  if (encoder_.lossy())
    way += peer.memory_agreed ? "; gradients are read there as fp32, not encoded" : "; gradients encoded";
  watch_.StreamOpened(stream.index(), way);
  for (const wire::ShardState& state : welcome.shards()) {
    if (state.lost() == 0) continue;
    const auto shard = FindShard(peer, state.shard());
    if (shard.ok()) lost_ += NewlyLost(**shard, state);
  }
  SayAgain(peer, peer.shards);
}

void Exchange::Broken(ServerStream& stream, const absl::Status& status) {
  Peer& peer = peers_[stream.index()];
  for (ShardId id : peer.shards) {
    session_.Disconnected(id);
    shards_[id.value()].lent = false;
  }
  ForgetEarly(peer.shards);
  peer.refused.clear();
  peer.retry_at = absl::InfiniteFuture();
  if (peer.retired) peer.memory.reset();
  if (leaving_ || peer.retired || !failure_.ok()) return;
  if (rpc::IsFinal(status)) return Fail(Named(watch_.name(stream.index()), status));
  watch_.StreamBroken(stream.index(), status);
}

void Exchange::Received(ServerStream& stream, const wire::ServerItem& item, const rpc::Payload& payload) {
  const absl::Status status = Dispatch(peers_[stream.index()], item, payload);
  if (!status.ok()) return Fail(Named(watch_.name(stream.index()), status));
  CompleteIfDone();
}

absl::Status Exchange::Dispatch(Peer& peer, const wire::ServerItem& item, const rpc::Payload& payload) {
  const size_t index = peer.stream->index();
  if (item.has_refused()) return OnRefused(peer, item.refused());
  if (item.has_waiting()) {
    OnWaiting(index, item.waiting());
    return absl::OkStatus();
  }
  watch_.Heard(index, time_.Now());
  // A shard that is not this server's is found before anything is believed.
  if (item.has_answer()) {
    const auto shard = FindShard(peer, item.answer().shard());
    return shard.ok() ? OnAnswer(item.answer()) : shard.status();
  }
  if (item.has_pull()) {
    const auto shard = FindShard(peer, item.pull().shard());
    const absl::Status written = shard.ok() ? OnPullChunk(item.pull(), payload) : shard.status();
    if (!written.ok() || !item.pull().has_done()) return written;
    const auto done = FindShard(peer, item.pull().done().shard());
    return done.ok() ? OnPullDone(item.pull().done()) : done.status();
  }
  if (item.has_pull_done()) {
    const auto shard = FindShard(peer, item.pull_done().shard());
    return shard.ok() ? OnPullDone(item.pull_done()) : shard.status();
  }
  return absl::InternalError("sent an item without a body that is known here");
}

absl::StatusOr<Exchange::Shard*> Exchange::FindShard(const Peer& peer, uint32_t shard) {
  if (!std::binary_search(peer.shards.begin(), peer.shards.end(), ShardId(shard))) {
    return absl::InternalError(absl::StrCat("speaks for shard ", shard, ", which it does not hold"));
  }
  return &shards_[shard];
}

absl::Status Exchange::OnAnswer(const wire::PushAnswer& answer) {
  const ShardId id(answer.shard());
  const bool applied = answer.outcome() == wire::OUTCOME_APPLIED;
  if (!applied && answer.outcome() != wire::OUTCOME_DISCARDED) {
    return absl::InternalError(absl::StrCat("answered push ", answer.sequence(), " with outcome ", answer.outcome()));
  }
  peers_[shards_[id.value()].peer].backoff->Reset();
  if (answer.sequence() == 0) {
    if (std::exchange(shards_[id.value()].seed_awaited, false)) --seeds_awaited_;
    return absl::OkStatus();
  }
  const absl::StatusOr<bool> first = session_.Answered(
      id, Sequence(answer.sequence()), applied ? Session::Outcome::kApplied : Session::Outcome::kDiscarded);
  if (!first.ok()) return first.status();
  InFlight* const step = FindStep(answer.sequence());
  if (!*first || step == nullptr) return absl::OkStatus();
  const bool outlier = !applied && answer.reason() == wire::DISCARD_OUTLIER;
  StepReport& report = step->report;
  report.pushed_bytes += BytesOf(id, step->sent[id.value()]);
  Record("push shard", id, step->sent[id.value()].begun);
  ForgetPush(id, *step, /*settled=*/applied || outlier);
  ++(applied ? report.shards_applied : report.shards_discarded);
  if (outlier) ++report.shards_quarantined;
  if (report.shards_applied + report.shards_discarded == shards_.size()) report.pushed = time_.Now() - step->committed;
  NoteFinished();
  if (!applied) {
    std::deque<uint64_t>& discarded = shards_[id.value()].discarded;
    discarded.push_back(answer.sequence());
    if (discarded.size() > kDiscardedMax) discarded.pop_front();
  }
  if (applied) {
    report.staleness_sum += answer.staleness();
    report.staleness_max = std::max(report.staleness_max, answer.staleness());
    report.staleness.Add(answer.staleness());
  }
  return absl::OkStatus();
}

absl::Status Exchange::OnPullChunk(const wire::PullChunk& chunk, const rpc::Payload& payload) {
  const ShardId id(chunk.shard());
  Shard& shard = shards_[id.value()];
  // Of any pull, awaited or not: what is lent is given back.
  if (chunk.has_segment_offset() && peers_[shard.peer].memory == nullptr) {
    return absl::InternalError(
        absl::StrCat("shard ", id.value(), ": a chunk in shared memory, which was not agreed on"));
  }
  shard.lent |= chunk.has_segment_offset();
  const std::optional<Clock64> clock = session_.Awaits(id, PullId(chunk.id()));
  if (!clock) return absl::OkStatus();  // of a pull that was asked for again since
  const auto add = [&]() -> absl::Status {
    const absl::StatusOr<codec::Codec> codec = CodecFromWire(chunk.encoding());
    if (!codec.ok()) return codec.status();
    const absl::StatusOr<rpc::Payload> bytes = FindBytes(peers_[shard.peer], chunk, *codec, payload);
    if (!bytes.ok()) return bytes.status();
    pulled_bytes_ += bytes->size();
    return shard.writer.Write({chunk.offset(), chunk.elements(), *codec, FromWire(chunk.version())}, bytes->segments(),
                              Destination(shard, *clock));
  };
  const absl::Status status = add();
  return status.ok() ? status : Named(absl::StrCat("shard ", id.value()), status);
}

absl::StatusOr<rpc::Payload> Exchange::FindBytes(const Peer& peer, const wire::PullChunk& chunk,
                                                 const codec::Codec& codec, const rpc::Payload& payload) const {
  const bool plain = codec.encoding == codec::Encoding::kFp32;
  if (!plain && (codec.encoding != options_.pull_encoding || chunk.has_segment_offset())) {
    return absl::InternalError(absl::StrCat("a chunk as ", codec::ToString(codec), ", which was not asked for"));
  }
  if (chunk.has_segment_offset()) {
    return peer.memory->Find(ShardId(chunk.shard()), chunk.segment_offset(), chunk.elements());
  }
  if (chunk.elements() <= map_.elements && codec::IsEncodedLength(codec, chunk.elements(), payload.size())) {
    return payload;
  }
  return absl::InternalError(absl::StrCat("a chunk of ", chunk.elements(), " elements as ", codec::ToString(codec),
                                          " has ", payload.size(), " bytes"));
}

bool Exchange::GiveBack(Peer& peer, const wire::PullDone& done) {
  if (!peer.memory->StillLent()) {
    // Opening it again asks for the pull again.
    peer.stream->Break(absl::UnavailableError("the server took its memory back while it was read"));
    return false;
  }
  std::vector<Outgoing> items(1);
  wire::Release& release = *items.back().item.mutable_release();
  release.set_id(done.id());
  release.add_shards(done.shard());
  Send(peer, std::move(items));
  return true;
}

absl::Status Exchange::OnPullDone(const wire::PullDone& done) {
  const ShardId id(done.shard());
  Shard& shard = shards_[id.value()];
  const std::optional<Clock64> clock = session_.Awaits(id, PullId(done.id()));
  if (std::exchange(shard.lent, false) && !GiveBack(peers_[shard.peer], done)) return absl::OkStatus();
  if (!clock) return absl::OkStatus();
  const Version version = FromWire(done.version());
  const uint64_t elements = shard.info.end - shard.info.begin;
  const absl::StatusOr<uint64_t> came =
      shard.writer.Finish(version, done.unchanged(),
                          {elements, session_.version(id) ? PushedEnd(shard.info) - shard.info.begin : elements});
  if (!came.ok()) return Named(absl::StrCat("shard ", id.value()), came.status());
  if (done.unchanged() && session_.version(id) != version) {
    return absl::InternalError(absl::StrCat("shard ", id.value(), ": unchanged at version ", ToString(version),
                                            ", which the worker does not have"));
  }
  const Session::Clocks served = session_.Pulled(id, PullId(done.id()), version);
  Deliver(shard, served, *came);
  NotePulled(id, served);
  InFlight* const step = FindStep(clock->value());
  if (step != nullptr) Record("pull shard", id, step->committed);
  if (step != nullptr && *clock > Clock64(done.clock_min())) {
    step->report.slack = std::max(step->report.slack, clock->value() - done.clock_min());
  }
  NoteFinished();
  return absl::OkStatus();
}

void Exchange::Record(const char* what, ShardId shard, absl::Time begin) const {
  if (options_.trace.trace == nullptr) return;
  options_.trace.trace->AddOverlapping({what, static_cast<int64_t>(shard.value())}, begin, time_.Now());
}

void Exchange::NoteFinished() {
  for (InFlight& step : steps_) {
    if (step.sequence > session_.finished()) return;
    if (step.report.pulled == absl::ZeroDuration()) step.report.pulled = time_.Now() - step.committed;
  }
}

absl::Span<float> Exchange::Destination(const Shard& shard, Clock64 pull_clock) {
  const InFlight* const step = FindStep(pull_clock.value());
  SLACKLINE_CHECK(step != nullptr || (request_ != nullptr && request_->kind == Request::Kind::kPull));
  const absl::Span<float> parameters = step != nullptr ? step->parameters : request_->parameters;
  return parameters.subspan(shard.info.begin, shard.info.end - shard.info.begin);
}

void Exchange::Deliver(Shard& shard, const Session::Clocks& clocks, uint64_t came) {
  const absl::Span<float> newest = Destination(shard, clocks.back());
  if (newest.data() != shard.held.data() && came < newest.size()) {
    const absl::Span<const float> kept = shard.held.subspan(came);
    std::copy(kept.begin(), kept.end(), newest.begin() + static_cast<std::ptrdiff_t>(came));
  }
  for (const Clock64 clock : clocks) {
    const absl::Span<float> to = Destination(shard, clock);
    if (to.data() != newest.data()) std::copy(newest.begin(), newest.end(), to.begin());
  }
  shard.held = newest;
}

void Exchange::NotePulled(ShardId shard, const Session::Clocks& clocks) {
  if (on_pulled_ == nullptr || steps_.empty()) return;
  InFlight& step = steps_.front();
  const bool mine = std::any_of(clocks.begin(), clocks.end(),
                                [&](const Clock64& clock) { return clock.value() == step.sequence.value(); });
  if (!mine) return;
  step.pulled[shard.value()] = true;
  const size_t before = step.pulled_first;
  while (step.pulled_first < shards_.size() && step.pulled[step.pulled_first]) ++step.pulled_first;
  if (step.pulled_first > before) on_pulled_(shards_[step.pulled_first - 1].info.end);
}

void Exchange::OnWaiting(size_t peer, const wire::Waiting& waiting) {
  if (request_ == nullptr) return;
  std::string text = waiting.message();
  if (text.empty()) {
    text = absl::StrCat("shard ", waiting.shard(), " waits for worker ", waiting.culprit(), " (clock ",
                        waiting.culprit_clock(), ") since ", waiting.waited_ms(), " ms");
  }
  watch_.HeardWaiting(peer, text, time_.Now());
}

absl::Status Exchange::OnRefused(Peer& peer, const wire::Refused& refused) {
  const absl::Status status = ToStatus(refused);
  if (!rpc::IsRetryable(status)) return status;
  if (!peer.stream->open()) {
    peer.stream->Break(status);  // the Hello was refused: back off
    return absl::OkStatus();
  }
  if (refused.sequence() != 0) {
    const auto shard = FindShard(peer, refused.shard());
    if (!shard.ok()) return shard.status();
    peer.refused.insert(ShardId(refused.shard()));
  } else {
    const auto awaited = Awaited();
    for (ShardId id : awaited[peer.stream->index()]) peer.refused.insert(id);
  }
  if (peer.retry_at == absl::InfiniteFuture()) peer.retry_at = time_.Now() + peer.backoff->Next();
  WakeAt(peer.retry_at);
  return absl::OkStatus();
}

}  // namespace slackline::worker
