#include "worker/client/exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/text/utf8.h"

namespace slackline::worker {
namespace {

// How long a cancelled stream may take to end before its connection is broken.
constexpr absl::Duration kCancelled = absl::Milliseconds(500);

uint64_t JitterSeed(const ClientOptions& options, const ServerInfo& server) {
  return options.incarnation.value() * 1'000'003 + server.server.value();
}

// Where the map does not tell servers apart, all are of its generation.
Generation GenerationOf(const ServerInfo& server, const ShardMap& map) {
  return server.generation == Generation() ? map.generation : server.generation;
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

std::vector<PlannedChunk> PlanChunks(const ClientOptions& options, const ShardMap& map) {
  const PushEncoder encoder(options.push_runs);
  std::vector<PlannedChunk> planned;
  for (const ShardInfo& shard : map.shards) {
    const auto server = std::find_if(map.servers.begin(), map.servers.end(),
                                     [&](const ServerInfo& each) { return each.server == shard.server; });
    if (server == map.servers.end() || MayShareMemory(*server, options)) continue;
    const std::vector<PlannedChunk> more = encoder.PlanChunks(shard.begin, PushedEnd(shard, map), options.chunk_bytes);
    planned.insert(planned.end(), more.begin(), more.end());
  }
  return planned;
}

Exchange::Exchange(const ClientOptions& options, const ShardMap& map, grpc::CompletionQueue& queue,
                   const TimeSource& time)
    : options_(options),
      map_(map),
      queue_(queue),
      time_(time),
      session_(map.shards.size(), options.first_clock),
      // A server speaks every notice() at least: twice that is silence.
      watch_(map.servers, 2 * options.timeouts.notice(), options.on_notice),
      encoder_(options.push_runs, options.on_device) {
  for (const ServerInfo& info : map_.servers) AddPeer(info);
  for (const ShardInfo& info : map_.shards) {
    Shard& shard = shards_.emplace_back();
    shard.info = info;
    shard.peer = PeerOf(info.server);
    peers_[shard.peer].shards.push_back(info.shard);
  }
}

void Exchange::AddPeer(const ServerInfo& info) {
  Peer& peer = peers_.emplace_back();
  peer.info = info;
  peer.backoff = std::make_unique<Backoff>(JitterSeed(options_, info));
  peer.stream = std::make_unique<ServerStream>(ServerStream::Options{.index = peers_.size() - 1,
                                                                     .address = AddressOf(info),
                                                                     .job = options_.job,
                                                                     .generation = GenerationOf(info, map_),
                                                                     .jitter_seed = JitterSeed(options_, info),
                                                                     .protection = options_.protection},
                                               queue_, time_, static_cast<ServerStream::Owner&>(*this));
}

size_t Exchange::PeerOf(ServerId server) const {
  const auto found = std::find_if(peers_.begin(), peers_.end(),
                                  [&](const Peer& peer) { return peer.info.server == server && !peer.retired; });
  return static_cast<size_t>(found - peers_.begin());
}

void Exchange::Start() {
  for (Peer& peer : peers_) {
    // A server without shards has nothing to say.
    if (!peer.shards.empty()) peer.stream->Connect();
  }
}

void Exchange::Remap(const ShardMap& map) {
  if (map.generation <= map_.generation || leaving_ || !failure_.ok()) return;
  absl::Status valid = ValidateMap(map);
  bool same = map.shards.size() == map_.shards.size();
  for (size_t i = 0; same && i < shards_.size(); ++i) same = map.shards[i].end == shards_[i].info.end;
  if (valid.ok() && !same) valid = absl::FailedPreconditionError("it cuts the model into other shards");
  if (!valid.ok()) {
    return Fail(absl::FailedPreconditionError(
        absl::StrCat("the shard map of generation ", map.generation.value(), ": ", valid.message())));
  }
  map_ = map;
  std::vector<ServerInfo> before(peers_.size());
  for (size_t i = 0; i < peers_.size(); ++i) before[i] = peers_[i].info;
  for (const ServerInfo& info : map_.servers) {
    const size_t known = PeerOf(info.server);
    if (known < peers_.size()) {
      peers_[known].info = info;
      watch_.Moved(known, info);
    } else {
      watch_.Add(info, time_.Now());
      AddPeer(info);
      before.push_back(info);
    }
  }
  std::vector<bool> had(peers_.size());
  for (size_t i = 0; i < peers_.size(); ++i) had[i] = !peers_[i].shards.empty();
  const std::vector<bool> changed = MoveShards();
  for (size_t i = 0; i < changed.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.retired || (!changed[i] && peer.info == before[i])) continue;
    if (peer.shards.empty()) {
      if (had[i]) Retire(i);
    } else if (had[i]) {
      peer.stream->Redirect(AddressOf(peer.info), GenerationOf(peer.info, map_));
    } else {
      // Nobody has spoken to it yet.
      peer.stream->Aim(AddressOf(peer.info), GenerationOf(peer.info, map_));
      peer.stream->Connect();
    }
  }
}

std::vector<bool> Exchange::MoveShards() {
  std::vector<bool> changed(peers_.size());
  std::vector<ShardId> moved;
  for (size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[i];
    const size_t to = PeerOf(map_.shards[i].server);
    shard.info = map_.shards[i];
    if (to == shard.peer) continue;
    changed[shard.peer] = changed[to] = true;
    std::erase(peers_[shard.peer].shards, shard.info.shard);
    peers_[shard.peer].refused.erase(shard.info.shard);
    std::vector<ShardId>& there = peers_[to].shards;
    there.insert(std::lower_bound(there.begin(), there.end(), shard.info.shard), shard.info.shard);
    shard.peer = to;
    // As if its stream were broken: the one to its new server says all that is unanswered again.
    session_.Disconnected(shard.info.shard);
    shard.lent = false;
    moved.push_back(shard.info.shard);
  }
  ForgetEarly(moved);
  return changed;
}

void Exchange::Retire(size_t index) {
  // A further one is made where the server gets shards again: this stream may take its time to end.
  Peer& peer = peers_[index];
  peer.retired = true;
  peer.retry_at = absl::InfiniteFuture();
  peer.stream->Shutdown(std::nullopt);
  const bool stays = std::any_of(map_.servers.begin(), map_.servers.end(),
                                 [&](const ServerInfo& server) { return server.server == peer.info.server; });
  if (!stays) return;
  const ServerInfo info = peer.info;
  watch_.Add(info, time_.Now());
  AddPeer(info);
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
    CompleteIfDone();
  }
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
  if (now >= cut_at_) {
    cut_at_ = absl::InfiniteFuture();
    for (Peer& peer : peers_) peer.stream->CutConnection();
  }
  WakeAt(cut_at_);
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
  if (request_->kind == Request::Kind::kPull) session_.Take(session_.sequence());
  if (request_->kind == Request::Kind::kFinishStep) {
    session_.Take(steps_.front().sequence);
    request_->report = steps_.front().report;
    request_->report.clock = steps_.front().sequence;
    request_->report.waited = time_.Now() - request_begin_;
    request_->report.lost = std::exchange(lost_, 0);
    request_->report.pulled_bytes = std::exchange(pulled_bytes_, 0);
    steps_.pop_front();
  }
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
  cut_at_ = time_.Now() + kCancelled;
  WakeAt(cut_at_);
  if (request_ != nullptr) Complete(status);
}

void Exchange::Goodbye(const std::string& reason) {
  leaving_ = true;
  for (Peer& peer : peers_) {
    Outgoing last;
    last.item.mutable_goodbye()->set_reason(ValidText(reason));
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
