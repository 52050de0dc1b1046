#include "worker/client/exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace slackline::worker {
namespace {

uint64_t JitterSeed(const ClientOptions& options, const ServerInfo& server) {
  return options.incarnation.value() * 1'000'003 + server.server.value();
}

std::string Name(const Request& request, const Session& session) {
  switch (request.kind) {
    case Request::Kind::kSeed:
      return "sending initial weights";
    case Request::Kind::kPull:
      return absl::StrCat("pull at clock ", session.sequence().value());
    case Request::Kind::kFinishStep:
      return absl::StrCat("step ", session.finished().value() + 1);
  }
  return "";
}

}  // namespace

absl::Status ValidateMap(const ShardMap& map) {
  if (map.shards.empty()) return absl::InvalidArgumentError("the shard map has no shards");
  uint64_t next = 0;
  for (size_t i = 0; i < map.shards.size(); ++i) {
    const ShardInfo& shard = map.shards[i];
    if (shard.shard.value() != i || shard.begin != next || shard.end <= shard.begin) {
      return absl::InvalidArgumentError(absl::StrCat("the shard map has shard ", shard.shard.value(), " of elements [",
                                                     shard.begin, ", ", shard.end, ") where shard ", i,
                                                     " from element ", next, " is next"));
    }
    next = shard.end;
    const bool known = std::any_of(map.servers.begin(), map.servers.end(),
                                   [&](const ServerInfo& server) { return server.server == shard.server; });
    if (!known) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", i, " is on server ", shard.server.value(), ", which the shard map does not name"));
    }
  }
  if (next != map.elements) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shards end at element ", next, " of ", map.elements, " in the shard map"));
  }
  return absl::OkStatus();
}

Exchange::Exchange(const ClientOptions& options, const ShardMap& map, grpc::CompletionQueue& queue,
                   const TimeSource& time)
    : options_(options),
      map_(map),
      time_(time),
      session_(map.shards.size(), options.first_clock),
      // A server speaks every notice() at least: twice that is silence.
      watch_(map.servers, 2 * options.timeouts.notice(), options.on_notice),
      encoder_(options.push_runs) {
  for (size_t i = 0; i < map_.servers.size(); ++i) {
    const ServerInfo& info = map_.servers[i];
    Peer& peer = peers_.emplace_back();
    peer.info = info;
    peer.backoff = std::make_unique<Backoff>(JitterSeed(options, info));
    peer.stream = std::make_unique<Stream>(Stream::Options{.index = i,
                                                           .address = AddressOf(info),
                                                           .job = options.job,
                                                           .generation = map.generation,
                                                           .jitter_seed = JitterSeed(options, info)},
                                           queue, time, static_cast<Stream::Owner&>(*this));
  }
  for (const ShardInfo& info : map_.shards) {
    const auto server = std::find_if(map_.servers.begin(), map_.servers.end(),
                                     [&](const ServerInfo& server) { return server.server == info.server; });
    Shard& shard = shards_.emplace_back();
    shard.info = info;
    shard.peer = static_cast<size_t>(server - map_.servers.begin());
    peers_[shard.peer].shards.push_back(info.shard);
  }
}

void Exchange::Start() {
  for (Peer& peer : peers_) {
    // A server without shards has nothing to say.
    if (!peer.shards.empty()) peer.stream->Connect();
  }
}

void Exchange::BeginStep(const NewStep& step) {
  if (leaving_ || !failure_.ok()) return;
  const std::vector<Session::Send> sends = session_.BeginStep();
  steps_.push_back({session_.sequence(), step, {}, std::vector<SentPush>(shards_.size())});
  SendAll(sends);
}

void Exchange::Begin(Request& request, Done done) {
  SLACKLINE_CHECK(request_ == nullptr);
  if (leaving_) return done(absl::FailedPreconditionError("the exchange was closed"));
  if (!failure_.ok()) return done(failure_);
  request_ = &request;
  done_ = std::move(done);
  request_begin_ = time_.Now();
  watch_.Begin(Name(request, session_), request.timeout, request_begin_);
  WakeAt(watch_.next());
  if (request.kind == Request::Kind::kSeed) {
    for (Shard& shard : shards_) shard.seed_awaited = true;
    seeds_awaited_ = shards_.size();
    for (Peer& peer : peers_) SendSeeds(peer);
  } else if (request.kind == Request::Kind::kPull) {
    SendAll(session_.BeginPull());
  } else {
    SLACKLINE_CHECK(!steps_.empty());
    if (const absl::Status written = WriteArrived(); !written.ok()) return Fail(written);
    CompleteIfDone();
  }
}

void Exchange::SendAll(absl::Span<const Session::Send> sends) {
  std::vector<std::vector<Session::Send>> by_peer(peers_.size());
  for (const Session::Send& send : sends) by_peer[shards_[send.shard.value()].peer].push_back(send);
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (by_peer[i].empty()) continue;
    std::vector<Outgoing> items;
    // The pull goes first: it waits for this worker's own push, so that each shard is served as soon as its push is
    // answered, while those of the others are still on their way.
    AppendPulls(by_peer[i], items);
    // Backward finishes the last layers first; forward needs the first layers first. Steps stay in their order.
    std::vector<Session::Send>& mine = by_peer[i];
    std::stable_sort(mine.begin(), mine.end(), [](const Session::Send& a, const Session::Send& b) {
      return std::pair(a.clock, b.shard) < std::pair(b.clock, a.shard);
    });
    for (const Session::Send& send : mine) {
      if (send.push) AppendPushOf(send, peers_[i], items);
    }
    Send(peers_[i], std::move(items));
  }
}

void Exchange::AppendPushOf(const Session::Send& send, const Peer& peer, std::vector<Outgoing>& items) {
  const SubPush push = MakePush(send);
  SentPush& sent = FindStep(send.push->value())->sent[send.shard.value()];
  const std::optional<uint64_t> place = peer.memory_agreed && sent.encoded == nullptr
                                            ? OffsetInSegment(options_.push_segment.get(), push.values)
                                            : std::nullopt;
  sent.plain |= place.has_value() || !encoder_.lossy();
  if (place) return AppendSharedPush(push, *place, items);
  if (sent.plain) return AppendPush(push, peer.chunk_bytes, items);
  if (sent.encoded == nullptr) {
    sent.encoded = std::make_shared<PushEncoder::Push>(
        encoder_.Cut(shards_[send.shard.value()].info.begin, push.values, peer.chunk_bytes));
  }
  AppendEncodedPush(push, encoder_, sent.encoded, items);
}

void Exchange::ForgetPush(ShardId shard, InFlight& step, bool applied) {
  const std::shared_ptr<PushEncoder::Push> encoded = std::exchange(step.sent[shard.value()].encoded, nullptr);
  if (encoded == nullptr) return;
  // Usually all of it has gone out. What has not must not be encoded any more: the trainer takes its memory back.
  peers_[shards_[shard.value()].peer].stream->DropQueuedPush(shard, step.sequence);
  if (!applied) encoder_.Return(*encoded);
}

SubPush Exchange::MakePush(const Session::Send& send) const {
  const auto step =
      std::find_if(steps_.begin(), steps_.end(), [&](const InFlight& step) { return step.sequence == *send.push; });
  SLACKLINE_CHECK(step != steps_.end());
  const ShardInfo& shard = shards_[send.shard.value()].info;
  SubPush push = GradientPush(send, step->step.info, step->step.push.subspan(shard.begin, shard.end - shard.begin));
  push.loans = step->step.loans;
  return push;
}

Exchange::InFlight* Exchange::FindStep(uint64_t sequence) {
  for (InFlight& step : steps_) {
    if (step.sequence.value() == sequence) return &step;
  }
  return nullptr;
}

void Exchange::SendSeeds(Peer& peer) {
  if (!peer.stream->open()) return;
  std::vector<Outgoing> items;
  for (ShardId id : peer.shards) {
    const Shard& shard = shards_[id.value()];
    if (!shard.seed_awaited) continue;
    peer.stream->DropQueuedPushes(id);
    SubPush push = SeedPush(id, request_->seed.subspan(shard.info.begin, shard.info.end - shard.info.begin));
    push.loans = request_->loans;
    AppendPush(push, peer.chunk_bytes, items);
  }
  Send(peer, std::move(items));
}

void Exchange::Send(Peer& peer, std::vector<Outgoing> items) {
  if (!peer.stream->open() || items.empty()) return;  // Opened() says it all again
  peer.stream->Send(std::move(items));
}

void Exchange::SayAgain(Peer& peer, absl::Span<const ShardId> shards) {
  std::vector<Session::Send> sends;
  for (ShardId id : shards) {
    // What is left of the first attempt must not mix with the second.
    peer.stream->DropQueuedPushes(id);
    for (const Session::Send& send : session_.Connected(id)) sends.push_back(send);
  }
  if (request_ != nullptr && request_->kind == Request::Kind::kSeed) SendSeeds(peer);
  SendAll(sends);
}

std::vector<std::vector<ShardId>> Exchange::Awaited() const {
  std::vector<std::vector<ShardId>> awaited(peers_.size());
  for (ShardId id : session_.Awaited()) awaited[shards_[id.value()].peer].push_back(id);
  for (const Shard& shard : shards_) {
    if (shard.seed_awaited) awaited[shard.peer].push_back(shard.info.shard);
  }
  return awaited;
}

void Exchange::Tick() {
  const absl::Time now = time_.Now();
  next_tick_ = absl::InfiniteFuture();
  for (Peer& peer : peers_) {
    peer.stream->Tick(now);
    WakeAt(peer.stream->retry_at());
    if (now >= peer.retry_at && peer.stream->open()) {
      peer.retry_at = absl::InfiniteFuture();
      const std::set<ShardId> refused = std::exchange(peer.refused, {});
      SayAgain(peer, std::vector<ShardId>(refused.begin(), refused.end()));
    }
    WakeAt(peer.retry_at);
  }
  if (request_ == nullptr) return;
  const absl::Status silence = watch_.Check(Awaited(), now);
  WakeAt(watch_.next());
  if (!silence.ok()) Fail(silence);
}

void Exchange::WakeAt(absl::Time time) { next_tick_ = std::min(next_tick_, time); }

bool Exchange::RequestDone() const {
  switch (request_->kind) {
    case Request::Kind::kSeed:
      return seeds_awaited_ == 0;
    case Request::Kind::kPull:
      return session_.idle();
    case Request::Kind::kFinishStep:
      return session_.finished() >= steps_.front().sequence;
  }
  return false;
}

void Exchange::CompleteIfDone() {
  if (request_ == nullptr || !RequestDone()) return;
  if (request_->kind == Request::Kind::kSeed) return Complete(absl::OkStatus());
  if (const absl::Status taken = TakePulled(); !taken.ok()) return Fail(taken);
  if (request_->kind == Request::Kind::kFinishStep) {
    request_->report = steps_.front().report;
    request_->report.clock = steps_.front().sequence;
    request_->report.waited = time_.Now() - request_begin_;
    request_->report.lost = std::exchange(lost_, 0);
    steps_.pop_front();
  }
  Complete(absl::OkStatus());
}

// What came in while nobody waited, so that the rest is written as it comes.
absl::Status Exchange::WriteArrived() {
  for (Shard& shard : shards_) {
    const absl::Span<float> part = request_->parameters.subspan(shard.info.begin, shard.info.end - shard.info.begin);
    if (const absl::Status status = shard.arrivals.WriteFinished(part); !status.ok()) return status;
    const std::optional<PullId> begun = shard.arrivals.begun();
    const std::optional<Clock64> clock = begun ? session_.Awaits(shard.info.shard, *begun) : std::nullopt;
    if (!clock || *clock > steps_.front().sequence) continue;
    if (const absl::Status status = shard.arrivals.WriteBegun(part); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Exchange::TakePulled() {
  for (Shard& shard : shards_) {
    const absl::Status status =
        shard.arrivals.WriteFinished(request_->parameters.subspan(shard.info.begin, shard.info.end - shard.info.begin));
    if (!status.ok()) return status;
  }
  session_.Take();
  return absl::OkStatus();
}

absl::Span<float> Exchange::PulledPart(const Shard& shard, Clock64 pull_clock) const {
  if (request_ == nullptr || request_->kind == Request::Kind::kSeed) return {};
  if (request_->kind == Request::Kind::kFinishStep && pull_clock > steps_.front().sequence) return {};
  return request_->parameters.subspan(shard.info.begin, shard.info.end - shard.info.begin);
}

void Exchange::Complete(const absl::Status& status) {
  request_ = nullptr;
  std::exchange(done_, nullptr)(status);
}

void Exchange::Fail(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  for (Peer& peer : peers_) peer.stream->Shutdown(std::nullopt);
  if (request_ != nullptr) Complete(status);
}

void Exchange::Goodbye(const std::string& reason) {
  leaving_ = true;
  for (Peer& peer : peers_) {
    Outgoing last;
    last.item.mutable_goodbye()->set_reason(reason);
    peer.stream->Shutdown(std::move(last));
  }
}

bool Exchange::flushed() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.stream->flushed(); });
}

bool Exchange::ended() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.stream->ended(); });
}

}  // namespace slackline::worker
