// The part of Exchange that listens: what each frame from a server means.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "worker/client/exchange.h"

namespace slackline::worker {
namespace {

// Whether a stream that ended with this status is worth opening again.
bool IsFinal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

absl::Status Named(const std::string& server, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(server, ": ", status.message()));
}

// The status in `refused`, saying what was refused.
absl::Status ToStatus(const wire::Refused& refused) {
  // Codes beyond those of gRPC, and OK, make no sense here.
  const bool known = refused.code() >= 1 && refused.code() <= 16;
  const auto code = known ? static_cast<absl::StatusCode>(refused.code()) : absl::StatusCode::kInternal;
  if (refused.sequence() == 0) return absl::Status(code, absl::StrCat("refused: ", refused.message()));
  std::string text = absl::StrCat("refused push ", refused.sequence(), " of shard ", refused.shard());
  if (refused.expected_sequence() != 0) absl::StrAppend(&text, ", it expects push ", refused.expected_sequence());
  return absl::Status(code, absl::StrCat(text, ": ", refused.message()));
}

}  // namespace

wire::WorkerFrame Exchange::MakeHello(Stream& stream) {
  wire::WorkerFrame frame;
  frame.set_job(options_.job.value());
  frame.set_generation(map_.generation.value());
  wire::Hello& hello = *frame.mutable_hello();
  hello.set_role(options_.reader ? wire::ROLE_READER : wire::ROLE_WORKER);
  hello.set_worker(options_.worker.value());
  hello.set_incarnation(options_.incarnation.value());
  hello.set_first_clock(options_.first_clock.value());
  hello.set_clock(session_.clock().value());
  hello.set_encoding(wire::ENCODING_FP32);
  hello.set_window(1);
  for (ShardId id : peers_[stream.index()].shards) {
    wire::ShardClock& shard = *hello.add_shards();
    shard.set_shard(id.value());
    shard.set_last_answered(session_.last_answered(id).value());
  }
  return frame;
}

absl::Status Exchange::CheckWelcome(const Peer& peer, const wire::Welcome& welcome) const {
  if (welcome.chunk_bytes_max() < sizeof(float)) {
    return absl::InternalError(
        absl::StrCat("takes chunks of ", welcome.chunk_bytes_max(), " bytes; at least ", sizeof(float), " are needed"));
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

void Exchange::Opened(Stream& stream, const wire::Welcome& welcome) {
  Peer& peer = peers_[stream.index()];
  const absl::Status check = CheckWelcome(peer, welcome);
  if (!check.ok()) return Fail(Named(watch_.name(stream.index()), check));
  watch_.StreamOpened(stream.index());
  peer.chunk_bytes = std::min<uint64_t>(options_.chunk_bytes, welcome.chunk_bytes_max());
  for (const wire::ShardState& state : welcome.shards()) lost_ += state.lost();
  SayAgain(peer, peer.shards);
}

void Exchange::Broken(Stream& stream, const absl::Status& status) {
  Peer& peer = peers_[stream.index()];
  for (ShardId id : peer.shards) session_.Disconnected(id);
  peer.refused.clear();
  peer.retry_at = absl::InfiniteFuture();
  if (leaving_ || !failure_.ok()) return;
  if (IsFinal(status)) return Fail(Named(watch_.name(stream.index()), status));
  watch_.StreamBroken(stream.index(), status);
}

void Exchange::Received(Stream& stream, const wire::ServerFrame& frame, const rpc::Payload& payload) {
  const absl::Status status = Dispatch(peers_[stream.index()], frame, payload);
  if (!status.ok()) return Fail(Named(watch_.name(stream.index()), status));
  CompleteIfDone();
}

absl::Status Exchange::Dispatch(Peer& peer, const wire::ServerFrame& frame, const rpc::Payload& payload) {
  const size_t index = peer.stream->index();
  if (frame.has_refused()) return OnRefused(peer, frame.refused());
  if (frame.has_waiting()) {
    OnWaiting(index, frame.waiting());
    return absl::OkStatus();
  }
  watch_.Heard(index, time_.Now());
  // A shard that is not this server's is found before anything is believed.
  if (frame.has_answer()) {
    const auto shard = FindShard(peer, frame.answer().shard());
    return shard.ok() ? OnAnswer(frame.answer()) : shard.status();
  }
  if (frame.has_pull()) {
    const auto shard = FindShard(peer, frame.pull().shard());
    const absl::Status written = shard.ok() ? OnPullChunk(frame.pull(), payload) : shard.status();
    if (!written.ok() || !frame.pull().has_done()) return written;
    const auto done = FindShard(peer, frame.pull().done().shard());
    return done.ok() ? OnPullDone(frame.pull().done()) : done.status();
  }
  if (frame.has_pull_done()) {
    const auto shard = FindShard(peer, frame.pull_done().shard());
    return shard.ok() ? OnPullDone(frame.pull_done()) : shard.status();
  }
  return absl::InternalError("sent a frame without a body that is known here");
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
  if (!*first || request_ == nullptr) return absl::OkStatus();
  StepReport& report = request_->report;
  ++(applied ? report.shards_applied : report.shards_discarded);
  if (applied) {
    report.staleness_sum += answer.staleness();
    report.staleness_max = std::max(report.staleness_max, answer.staleness());
  }
  return absl::OkStatus();
}

absl::Status Exchange::OnPullChunk(const wire::PullChunk& chunk, const rpc::Payload& payload) {
  const ShardId id(chunk.shard());
  // Of a pull that was asked for again since; also guards the parameters between two requests.
  if (request_ == nullptr || !session_.Awaits(id, PullId(chunk.id()))) return absl::OkStatus();
  Shard& shard = shards_[id.value()];
  const absl::Status status =
      shard.writer.Write(chunk.offset(), FromWire(chunk.version()), payload.segments(),
                         request_->parameters.subspan(shard.info.begin, shard.info.end - shard.info.begin));
  return status.ok() ? status : Named(absl::StrCat("shard ", id.value()), status);
}

absl::Status Exchange::OnPullDone(const wire::PullDone& done) {
  const ShardId id(done.shard());
  if (request_ == nullptr || !session_.Awaits(id, PullId(done.id()))) return absl::OkStatus();
  Shard& shard = shards_[id.value()];
  const Version version = FromWire(done.version());
  const absl::Status status = shard.writer.Finish(version, done.unchanged(), shard.info.end - shard.info.begin);
  if (!status.ok()) return Named(absl::StrCat("shard ", id.value()), status);
  if (done.unchanged() && session_.version(id) != version) {
    return absl::InternalError(absl::StrCat("shard ", id.value(), ": unchanged at version ", ToString(version),
                                            ", which the worker does not have"));
  }
  session_.Pulled(id, PullId(done.id()), version);
  const uint64_t clock = session_.sequence().value();
  if (clock > done.clock_min()) request_->report.slack = std::max(request_->report.slack, clock - done.clock_min());
  return absl::OkStatus();
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
