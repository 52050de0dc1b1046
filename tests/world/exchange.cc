#include "tests/world/exchange.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "worker/life/patience.h"

namespace slackline::world {
namespace {

constexpr uint64_t kSamplesOfPush = 4;

}  // namespace

struct Exchange::Shard {
  wire::ShardSpec spec;
  size_t peer = 0;
  bool seed_awaited = false;
  std::vector<float> weights;   // as pulled last
  std::vector<float> arriving;  // of the pull that is arriving
  Version arriving_version;
};

class Exchange::Peer : public StreamEnd {
 public:
  Peer(Exchange& owner, wire::ServerSpec its_spec)
      : spec(std::move(its_spec)), owner_(owner), stream_backoff_(Seed()), backoff(Seed() + 1) {}
  ~Peer() override { Drop(); }

  // --- StreamEnd ---
  void Received(const std::any& what) override {
    const auto packet = std::any_cast<ServerPackets>(what);
    server_ = packet->server;
    if (open && !packet->item.has_refused()) stream_backoff_.Reset();
    if (!open && packet->item.has_welcome()) {
      open = true;
      heard = owner_.scene_.events.Now();
      return owner_.Opened(*this, packet->item.welcome());
    }
    if (!open && !packet->item.has_refused()) return Break(absl::InternalError("its first message was not a Welcome"));
    owner_.Received(*this, *packet);
  }
  void Closed(const absl::Status& status) override {
    stream_ = 0;
    Over(status);
  }

  void Connect() {
    if (stream_ != 0 || shards.empty() || !owner_.failure_.ok()) return;
    stream_ = owner_.scene_.network.Open(owner_.host_, spec.address(), *this, Method::kExchange);
    Hello();
  }
  void Break(const absl::Status& status) {
    Drop();
    Over(status);
  }
  void Redirect() {
    stream_backoff_.Reset();
    if (stream_ != 0) Break(absl::UnavailableError("the server has come back elsewhere"));
    Retry(absl::ZeroDuration());
  }
  void Send(wire::WorkerItem item, std::vector<float> payload = {}) {
    auto packet = std::make_shared<WorkerPacket>();
    packet->frame.set_job(kJob.value());
    packet->frame.set_generation(spec.generation());
    packet->payload = std::move(payload);
    item.set_payload_bytes(static_cast<uint32_t>(packet->payload.size() * sizeof(float)));
    packet->frame.add_items()->Swap(&item);
    owner_.scene_.network.Send(stream_, owner_.host_.life, WorkerPackets(std::move(packet)));
  }
  void Send(const std::vector<worker::Outgoing>& items) {
    for (const worker::Outgoing& each : items) {
      std::vector<float> payload(each.payload.size() / sizeof(float));
      if (!payload.empty()) std::memcpy(payload.data(), each.payload.data(), each.payload.size());
      Send(each.item, std::move(payload));
    }
  }
  LifeId server() const { return server_; }
  // There is somebody at its other end, who would say something.
  bool lives() const { return open && owner_.scene_.network.Whole(stream_); }
  // Its shards live elsewhere now.
  void Retire() {
    retired = true;
    SayGoodbye();
    Drop();
  }
  void SayGoodbye() {
    wire::WorkerItem item;
    item.mutable_goodbye()->set_reason("leaves");
    if (open) Send(std::move(item));
  }
  void Drop() {
    if (stream_ != 0) owner_.scene_.network.Close(std::exchange(stream_, 0), owner_.host_.life, absl::OkStatus());
    open = false;
  }

  wire::ServerSpec spec;
  std::set<ShardId> shards;
  bool open = false;
  // Another is made where the server gets shards again.
  bool retired = false;
  absl::Time heard;
  std::set<ShardId> refused;
  bool retrying = false;

 private:
  uint64_t Seed() const { return owner_.who_.sender.incarnation.value() * 1'000'003 + spec.server(); }
  void Over(const absl::Status& status) {
    open = false;
    Retry(stream_backoff_.Next());
    owner_.Broken(*this, status);
  }
  void Retry(absl::Duration wait) {
    owner_.scene_.events.After(wait, owner_.host_.life, [this, owner = std::weak_ptr<Exchange*>(owner_.self_)] {
      if (!owner.expired()) Connect();
    });
  }
  void Hello() {
    const Who& who = owner_.who_;
    worker::ClientOptions options;
    options.worker = who.sender.worker;
    options.incarnation = who.sender.incarnation;
    options.first_clock = who.first_clock;
    options.reader = who.reader;
    options.window = owner_.scene_.job.wire().window();
    const std::vector<ShardId> ids(shards.begin(), shards.end());
    wire::WorkerItem item;
    *item.mutable_hello() = worker::MakeHello(options, owner_.session_, ids);
    Send(std::move(item));
  }

  Exchange& owner_;
  StreamId stream_ = 0;
  LifeId server_ = 0;
  Backoff stream_backoff_;

 public:
  Backoff backoff;
};

Exchange::Exchange(Scene& scene, const Host& host, const Who& who, const wire::GetShardMapReply& map)
    : scene_(scene),
      host_(host),
      who_(who),
      map_(map),
      session_(static_cast<size_t>(map.shards_size()), who.first_clock),
      shards_(static_cast<size_t>(map.shards_size())) {
  for (const wire::ServerSpec& server : map_.servers()) peers_.push_back(std::make_unique<Peer>(*this, server));
  for (const wire::ShardSpec& spec : map_.shards()) {
    Shard& shard = shards_[spec.shard()];
    shard.spec = spec;
    shard.peer = PeerOf(spec.server());
    peers_[shard.peer]->shards.insert(ShardId(spec.shard()));
  }
  for (const auto& peer : peers_) peer->Connect();
  Watch();
}

Exchange::~Exchange() = default;

void Exchange::Remap(const wire::GetShardMapReply& map) {
  if (map.generation() <= map_.generation()) return;
  map_ = map;
  std::set<Peer*> changed, had;
  for (const auto& peer : peers_) {
    if (!peer->shards.empty()) had.insert(peer.get());
  }
  for (const wire::ServerSpec& spec : map_.servers()) {
    size_t known = PeerOf(spec.server());
    if (known == peers_.size()) peers_.push_back(std::make_unique<Peer>(*this, spec));
    Peer& peer = *peers_[known];
    if (peer.spec.address() != spec.address() || peer.spec.generation() != spec.generation()) changed.insert(&peer);
    peer.spec = spec;
  }
  for (const wire::ShardSpec& spec : map_.shards()) {
    Shard& shard = shards_[spec.shard()];
    shard.spec = spec;
    const size_t to = PeerOf(spec.server());
    if (to == shard.peer) continue;
    const ShardId id(spec.shard());
    changed.insert({peers_[shard.peer].get(), peers_[to].get()});
    peers_[shard.peer]->shards.erase(id);
    peers_[shard.peer]->refused.erase(id);
    peers_[to]->shards.insert(id);
    shard.peer = to;
    // As if its stream were broken: the one to its new server says all that is unanswered again.
    session_.Disconnected(id);
  }
  for (Peer* const peer : changed) {
    if (peer->shards.empty()) {
      if (had.contains(peer)) peer->Retire();
    } else if (had.contains(peer)) {
      peer->Redirect();
    } else {
      peer->Connect();
    }
  }
}

size_t Exchange::PeerOf(uint32_t server) const {
  const auto found = std::find_if(peers_.begin(), peers_.end(),
                                  [&](const auto& peer) { return !peer->retired && peer->spec.server() == server; });
  return static_cast<size_t>(found - peers_.begin());
}

void Exchange::Goodbye() {
  for (const auto& peer : peers_) peer->SayGoodbye();
  done_ = nullptr;
  Shutdown(absl::CancelledError("closed"));
}

void Exchange::Shutdown(const absl::Status& status) {
  failure_ = status;
  for (const auto& peer : peers_) peer->Drop();
}

// --- Requests ---------------------------------------------------------------------------------------------------

void Exchange::Begin(Kind kind, Done done) {
  kind_ = kind;
  done_ = std::move(done);
  begun_ = scene_.events.Now();
  if (failure_.ok()) return;
  scene_.events.After(absl::ZeroDuration(), host_.life, [this, self = std::weak_ptr<Exchange*>(self_)] {
    if (!self.expired() && done_ != nullptr) Complete(failure_);
  });
}

void Exchange::Seed(Done done) {
  Begin(Kind::kSeed, std::move(done));
  for (Shard& shard : shards_) shard.seed_awaited = true;
  for (const auto& peer : peers_) {
    for (const ShardId shard : peer->shards) {
      if (peer->open) SendSeed(*peer, shard);
    }
  }
}

void Exchange::Pull(Done done) {
  Begin(Kind::kPull, std::move(done));
  if (failure_.ok()) SendAll(session_.BeginPull());
}

void Exchange::Commit() {
  if (!failure_.ok()) {
    steps_.emplace_back();
    return;
  }
  const Sequence sequence = session_.sequence().Next();
  steps_.push_back({sequence, scene_.ledger.Begin(who_.sender, sequence)});
  SendAll(session_.BeginStep());
}

void Exchange::Finish(Done done) {
  Begin(Kind::kStep, std::move(done));
  if (!failure_.ok()) return;
  scene_.events.After(absl::ZeroDuration(), host_.life, [this, self = std::weak_ptr<Exchange*>(self_)] {
    if (!self.expired()) CompleteIfDone();
  });
}

worker::StepReport Exchange::TakeReport() {
  worker::StepReport report;
  report.clock = session_.clock();
  report.shards_applied = session_.applied() - std::exchange(applied_, session_.applied());
  report.shards_discarded = session_.discarded() - std::exchange(discarded_, session_.discarded());
  report.lost = std::exchange(lost_, 0);
  return report;
}

void Exchange::CompleteIfDone() {
  if (done_ == nullptr || !failure_.ok()) return;
  switch (kind_) {
    case Kind::kSeed:
      for (const Shard& shard : shards_) {
        if (shard.seed_awaited) return;
      }
      break;
    case Kind::kPull:
      if (!session_.idle()) return;
      session_.Take(session_.sequence());
      break;
    case Kind::kStep:
      if (session_.finished() < steps_.front().sequence) return;
      session_.Take(steps_.front().sequence);
      steps_.pop_front();
      break;
  }
  Complete(absl::OkStatus());
}

void Exchange::Complete(const absl::Status& status) { std::exchange(done_, nullptr)(status); }

void Exchange::Fail(const absl::Status& status) {
  if (!failure_.ok()) return;
  // One that stands by may not have heard so yet.
  if (rpc::IsFinal(status) && !who_.reader && scene_.live(who_.sender)) scene_.ledger.Refused(who_.sender, status);
  Shutdown(status);
  if (done_ != nullptr) Complete(status);
}

std::set<ShardId> Exchange::AwaitedFrom(const Peer& peer) const {
  std::set<ShardId> awaited;
  for (const ShardId shard : session_.Awaited()) {
    if (peer.shards.contains(shard)) awaited.insert(shard);
  }
  for (const ShardId shard : peer.shards) {
    if (shards_[shard.value()].seed_awaited) awaited.insert(shard);
  }
  return awaited;
}

// Ends waits for a server that is silent for too long. Two bounds: after silence_max a worker gives up; and a server
// that lives, reached by a stream that is open, says something every notice(), if only that all wait.
void Exchange::Watch() {
  const Timeouts& timeouts = scene_.timeouts;
  const absl::Duration silence_max =
      worker::SilenceMax(timeouts, worker::ServerReturn(scene_.job.durability(), timeouts));
  const absl::Time now = scene_.events.Now();
  if (!failure_.ok()) return;
  for (const auto& peer : peers_) {
    if (done_ == nullptr || AwaitedFrom(*peer).empty()) continue;
    const absl::Duration silent = now - std::max(peer->heard, begun_);
    if (silent > 2 * timeouts.notice() + absl::Seconds(1) && peer->lives() && scene_.calm()) {
      scene_.violated(absl::StrCat(host_.name, " awaits something of ", peer->spec.name(), ", which is silent for ",
                                   absl::FormatDuration(silent)));
    }
    if (silent > silence_max) return Fail(absl::DeadlineExceededError(absl::StrCat(peer->spec.name(), " is silent")));
  }
  scene_.events.After(timeouts.heartbeat, host_.life, [this, self = std::weak_ptr<Exchange*>(self_)] {
    if (!self.expired()) Watch();
  });
}

// --- What servers say -------------------------------------------------------------------------------------------

void Exchange::Opened(Peer& peer, const wire::Welcome& welcome) {
  for (const wire::ShardState& state : welcome.shards()) {
    if (who_.reader) break;
    const ShardId shard(state.shard());
    const uint64_t before = scene_.counts.lost;
    if (state.lost() > 0) {
      scene_.Tell(host_.name, " is told by shard ", state.shard(), " that ", state.lost(), " pushes up to ",
                  state.lost_to(), " are lost");
    }
    scene_.ledger.Welcomed(who_.sender, shard, state.lost(), state.lost_to(), peer.server());
    lost_ += scene_.counts.lost - before;
  }
  SayAgain(peer, peer.shards);
}

void Exchange::Broken(Peer& peer, const absl::Status& status) {
  for (const ShardId shard : peer.shards) session_.Disconnected(shard);
  peer.refused.clear();
  if (rpc::IsFinal(status)) Fail(status);
}

void Exchange::Received(Peer& peer, const ServerPacket& packet) {
  if (!failure_.ok()) return;
  if (const absl::Status status = Dispatch(peer, packet); !status.ok()) return Fail(status);
  CompleteIfDone();
}

absl::Status Exchange::Dispatch(Peer& peer, const ServerPacket& packet) {
  const wire::ServerItem& item = packet.item;
  if (item.has_refused()) return OnRefused(peer, item.refused());
  peer.heard = scene_.events.Now();
  if (item.has_answer()) {
    peer.backoff.Reset();
    return OnAnswer(item.answer(), packet.server);
  }
  if (item.has_pull()) {
    const absl::Status written = OnChunk(item.pull(), packet.payload);
    return written.ok() && item.pull().has_done() ? OnPullDone(item.pull().done()) : written;
  }
  if (item.has_pull_done()) return OnPullDone(item.pull_done());
  return absl::OkStatus();
}

absl::Status Exchange::OnAnswer(const wire::PushAnswer& answer, LifeId server) {
  const ShardId shard(answer.shard());
  if (answer.sequence() == 0) {
    shards_[shard.value()].seed_awaited = false;
    return absl::OkStatus();
  }
  scene_.ledger.Answered(who_.sender, answer, server);
  const bool applied = answer.outcome() == wire::OUTCOME_APPLIED;
  return session_
      .Answered(shard, Sequence(answer.sequence()), applied ? Session::Outcome::kApplied : Session::Outcome::kDiscarded)
      .status();
}

absl::Status Exchange::OnChunk(const wire::PullChunk& chunk, const std::vector<float>& payload) {
  Shard& shard = shards_[chunk.shard()];
  if (!session_.Awaits(ShardId(chunk.shard()), PullId(chunk.id()))) return absl::OkStatus();
  const Version version = worker::FromWire(chunk.version());
  if (chunk.offset() == 0) {
    shard.arriving.clear();
    shard.arriving_version = version;
  }
  if (chunk.offset() != shard.arriving.size() || version != shard.arriving_version) {
    return absl::InternalError(absl::StrCat("chunk at ", chunk.offset(), " of version ", ToString(version), " behind ",
                                            shard.arriving.size(), " elements of version ",
                                            ToString(shard.arriving_version)));
  }
  shard.arriving.insert(shard.arriving.end(), payload.begin(), payload.end());
  return absl::OkStatus();
}

absl::Status Exchange::OnPullDone(const wire::PullDone& done) {
  const ShardId id(done.shard());
  Shard& shard = shards_[id.value()];
  const std::optional<Clock64> clock = session_.Awaits(id, PullId(done.id()));
  if (!clock) return absl::OkStatus();
  const Version version = worker::FromWire(done.version());
  if (done.unchanged() && session_.version(id) != version) {
    return absl::InternalError(absl::StrCat("unchanged at version ", ToString(version), ", which the worker has not"));
  }
  if (!done.unchanged() && (shard.arriving.size() != kShardElements || shard.arriving_version != version)) {
    return absl::InternalError(absl::StrCat("a pull of ", shard.arriving.size(), " elements is complete"));
  }
  if (!done.unchanged()) shard.weights.swap(shard.arriving);
  shard.arriving.clear();
  session_.Pulled(id, PullId(done.id()), version);
  scene_.ledger.Pulled(who_.reader ? Sender() : who_.sender, id, version, *clock, shard.weights);
  return absl::OkStatus();
}

absl::Status Exchange::OnRefused(Peer& peer, const wire::Refused& refused) {
  const absl::Status status = worker::ToStatus(refused);
  if (!rpc::IsRetryable(status)) return status;
  if (!peer.open) {
    peer.Break(status);
    return absl::OkStatus();
  }
  if (refused.sequence() != 0) {
    peer.refused.insert(ShardId(refused.shard()));
  } else {
    peer.refused.merge(AwaitedFrom(peer));
  }
  if (std::exchange(peer.retrying, true)) return absl::OkStatus();
  scene_.events.After(peer.backoff.Next(), host_.life, [this, &peer, self = std::weak_ptr<Exchange*>(self_)] {
    if (self.expired()) return;
    peer.retrying = false;
    if (peer.open) SayAgain(peer, std::exchange(peer.refused, {}));
  });
  return absl::OkStatus();
}

// --- What is said -----------------------------------------------------------------------------------------------

void Exchange::SayAgain(Peer& peer, const std::set<ShardId>& shards) {
  std::vector<Session::Send> sends;
  for (const ShardId id : shards) {
    for (const Session::Send& send : session_.Connected(id)) sends.push_back(send);
    if (shards_[id.value()].seed_awaited) SendSeed(peer, id);
  }
  SendAll(sends);
}

void Exchange::SendAll(const std::vector<Session::Send>& sends) {
  for (const Session::Send& send : sends) {
    Peer& peer = *peers_[shards_[send.shard.value()].peer];
    if (!peer.open || !send.pull) continue;
    std::vector<worker::Outgoing> items;
    worker::AppendPulls({&send, 1}, /*averaged=*/false, items);
    peer.Send(items);
  }
  for (const Session::Send& send : sends) {
    Peer& peer = *peers_[shards_[send.shard.value()].peer];
    if (peer.open && send.push) SendPush(peer, send);
  }
}

void Exchange::SendPush(Peer& peer, const Session::Send& send) {
  const auto step = std::find_if(steps_.begin(), steps_.end(), [&](const Step& s) { return s.sequence == *send.push; });
  if (step == steps_.end()) return;
  scene_.ledger.Sent(who_.sender, *send.push, send.shard, send.base);
  std::vector<float> gradient(kShardElements);
  gradient[0] = gradient[step->slot] = -1;
  const worker::PushInfo info = {
      .samples = kSamplesOfPush, .loss = 1, .gradient_norm = std::sqrt(2.0 * static_cast<double>(shards_.size()))};
  Push(peer, worker::GradientPush(send, info, gradient));
}

void Exchange::SendSeed(Peer& peer, ShardId shard) {
  const std::vector<float> weights(kShardElements);
  Push(peer, worker::SeedPush(shard, weights));
}

void Exchange::Push(Peer& peer, const worker::SubPush& push) {
  std::vector<worker::Outgoing> items;
  worker::AppendPush(push, scene_.job.wire().chunk_bytes(), items);
  peer.Send(items);
}

}  // namespace slackline::world
