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
    case Request::Kind::kStep:
      return absl::StrCat("step ", session.sequence().value());
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
                   const TimeSource& time, std::shared_ptr<Loans> loans)
    : options_(options),
      map_(map),
      time_(time),
      session_(map.shards.size(), options.first_clock),
      // A server speaks every notice() at least: twice that is silence.
      watch_(map.servers, 2 * options.timeouts.notice(), options.on_notice) {
  for (size_t i = 0; i < map_.servers.size(); ++i) {
    const ServerInfo& info = map_.servers[i];
    Peer& peer = peers_.emplace_back();
    peer.info = info;
    peer.backoff = std::make_unique<Backoff>(JitterSeed(options, info));
    peer.stream = std::make_unique<Stream>(
        Stream::Options{.index = i, .address = info.address, .jitter_seed = JitterSeed(options, info)}, queue, time,
        loans, static_cast<Stream::Owner&>(*this));
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

void Exchange::Begin(Request& request, Done done) {
  SLACKLINE_CHECK(request_ == nullptr);
  if (leaving_) return done(absl::FailedPreconditionError("the exchange was closed"));
  if (!failure_.ok()) return done(failure_);
  request_ = &request;
  done_ = std::move(done);
  request_begin_ = time_.Now();
  std::vector<Session::Send> sends;
  if (request.kind == Request::Kind::kSeed) {
    for (Shard& shard : shards_) shard.seed_awaited = true;
    seeds_awaited_ = shards_.size();
    for (Peer& peer : peers_) SendSeeds(peer);
  } else {
    sends = request.kind == Request::Kind::kStep ? session_.BeginStep() : session_.BeginPull();
  }
  watch_.Begin(Name(request, session_), request.timeout, request_begin_);
  WakeAt(watch_.next());
  SendAll(sends);
}

void Exchange::SendAll(absl::Span<const Session::Send> sends) {
  std::vector<std::vector<Session::Send>> by_peer(peers_.size());
  for (const Session::Send& send : sends) by_peer[shards_[send.shard.value()].peer].push_back(send);
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (by_peer[i].empty()) continue;
    std::vector<Outgoing> frames;
    // The pull goes first: it waits for this worker's own push, so that each shard is served as soon as its push is
    // answered, while those of the others are still on their way.
    AppendPulls(by_peer[i], frames);
    // Backward finishes the last layers first; forward needs the first layers first.
    for (auto send = by_peer[i].rbegin(); send != by_peer[i].rend(); ++send) {
      if (!send->push) continue;
      const absl::Span<const float> part = PushPart(shards_[send->shard.value()]);
      AppendPush(GradientPush(*send, request_->info, part), peers_[i].chunk_bytes, frames);
    }
    SendFrames(peers_[i], std::move(frames));
  }
}

void Exchange::SendSeeds(Peer& peer) {
  if (!peer.stream->open()) return;
  std::vector<Outgoing> frames;
  for (ShardId id : peer.shards) {
    const Shard& shard = shards_[id.value()];
    if (!shard.seed_awaited) continue;
    peer.stream->DropQueuedPush(id.value());
    AppendPush(SeedPush(id, PushPart(shard)), peer.chunk_bytes, frames);
  }
  SendFrames(peer, std::move(frames));
}

void Exchange::SendFrames(Peer& peer, std::vector<Outgoing> frames) {
  if (!peer.stream->open() || frames.empty()) return;  // Opened() says it all again
  for (Outgoing& frame : frames) {
    frame.header.set_job(options_.job.value());
    frame.header.set_generation(map_.generation.value());
  }
  peer.stream->Send(std::move(frames));
}

void Exchange::SayAgain(Peer& peer, absl::Span<const ShardId> shards) {
  std::vector<Session::Send> sends;
  for (ShardId id : shards) {
    // What is left of the first attempt must not mix with the second.
    peer.stream->DropQueuedPush(id.value());
    if (std::optional<Session::Send> send = session_.Connected(id)) sends.push_back(*send);
  }
  if (request_ == nullptr) return;
  if (request_->kind == Request::Kind::kSeed) return SendSeeds(peer);
  SendAll(sends);
}

absl::Span<const float> Exchange::PushPart(const Shard& shard) const {
  return request_->push.subspan(shard.info.begin, shard.info.end - shard.info.begin);
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

void Exchange::CompleteIfDone() {
  if (request_ == nullptr || seeds_awaited_ > 0 || !session_.idle()) return;
  request_->report.clock = session_.clock();
  request_->report.waited = time_.Now() - request_begin_;
  if (request_->kind == Request::Kind::kStep) request_->report.lost = std::exchange(lost_, 0);
  Complete(absl::OkStatus());
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
    Outgoing frame;
    frame.header.set_job(options_.job.value());
    frame.header.set_generation(map_.generation.value());
    frame.header.mutable_goodbye()->set_reason(reason);
    peer.stream->Shutdown(std::move(frame));
  }
}

bool Exchange::ended() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.stream->ended(); });
}

}  // namespace slackline::worker
