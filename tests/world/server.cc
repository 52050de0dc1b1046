#include "tests/world/server.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "common/base/protocol_version.h"
#include "tests/world/scheduler.h"

namespace slackline::world {
namespace {

// As ps/service/snapshot_keeper.cc has it.
constexpr absl::Duration kOpenAgain = absl::Milliseconds(100);

}  // namespace

// One worker's stream, from the server's side. Everything goes out in the order in which it was said, one chunk at a
// time, so that what a pull holds on to is read while steps go on.
class ServerProcess::Stream : public ps::Peer, public StreamEnd {
 public:
  Stream(ServerProcess& owner, StreamId id) : owner_(owner), id_(id) {}

  // --- ps::Peer ---
  void Send(const wire::ServerItem& item) override {
    if (ended_) return owner_.scene_.violated("a server writes to a stream that has ended");
    wire::ServerItem sent = owner_.table_.AsSent(worker_, item);
    if (sent.answer().sequence() > 0 && worker_) owner_.scene_.ledger.Answers(owner_.life, *worker_, sent.answer());
    queue_.push_back({std::move(sent), std::nullopt, 0});
    Pump();
  }
  void Serve(ps::PullReply reply) override {
    if (ended_) return owner_.scene_.violated("a server serves a stream that has ended");
    if (const auto asked = pulls_.find(reply.id.value());
        asked != pulls_.end() && reply.weights != nullptr && worker_) {
      std::vector<float> weights(reply.weights->view().elements());
      reply.weights->view().CopyTo(absl::MakeSpan(weights));
      owner_.scene_.ledger.Serves(owner_.life, reply.shard, *worker_, asked->second, reply.version, weights);
    }
    const auto waits = [&](const Outgoing& out) {
      return out.reply && out.next == 0 && out.reply->shard == reply.shard;
    };
    if (std::count_if(queue_.begin(), queue_.end(), waits) >= reply.queued_max) {
      std::find_if(queue_.rbegin(), queue_.rend(), waits)->reply = std::move(reply);
    } else {
      queue_.push_back({{}, std::move(reply), 0});
    }
    Pump();
  }
  void Release(ShardId /*shard*/, PullId /*id*/) override {}
  void End(const absl::Status& status) override {
    if (ended_) return;
    ended_ = true;
    owner_.table_.Closed(*this);
    queue_.clear();
    owner_.scene_.network.Close(id_, owner_.life, status.ok() ? absl::UnavailableError("the stream is over") : status);
    Vanish();
  }

  // --- StreamEnd ---
  void Received(const std::any& what) override {
    if (ended_) return;
    const auto packet = std::any_cast<WorkerPackets>(what);
    const wire::WorkerFrame& frame = packet->frame;
    bool greeted = false;
    for (const wire::WorkerItem& item : frame.items()) {
      if (item.has_pull()) pulls_[item.pull().id()] = Clock64(item.pull().clock());
      if (!item.has_hello()) continue;
      greeted = true;
      if (item.hello().role() == wire::ROLE_WORKER) {
        worker_ = Sender{WorkerId(item.hello().worker()), Incarnation(item.hello().incarnation())};
      }
    }
    const auto* const bytes = reinterpret_cast<const std::byte*>(packet->payload.data());
    const std::optional<absl::Status> end = owner_.table_.Receive(
        *this, worker_, frame, rpc::Payload({bytes, packet->payload.size() * sizeof(float)}, packet));
    if (end) End(*end);
    if (greeted && !end && Generation(frame.generation()) != owner_.generation_) {
      owner_.scene_.violated(absl::StrCat(owner_.name, " takes a stream of shard map generation ", frame.generation(),
                                          "; it is at ", owner_.generation_.value()));
    }
    owner_.Look();
  }
  void Closed(const absl::Status& /*status*/) override {
    if (ended_) return;
    ended_ = true;
    queue_.clear();
    owner_.table_.Closed(*this);
    owner_.scene_.network.Close(id_, owner_.life, absl::OkStatus());
    Vanish();
  }

 private:
  struct Outgoing {
    wire::ServerItem item;
    std::optional<ps::PullReply> reply;
    size_t next = 0;  // chunk
  };

  void Vanish() {
    owner_.scene_.events.After(absl::ZeroDuration(), owner_.life,
                               [&owner = owner_, id = id_] { owner.streams_.erase(id); });
  }
  void Pump() {
    if (pumping_ || queue_.empty()) return;
    pumping_ = true;
    const absl::Duration wait = owner_.scene_.random.Chance(0.2)
                                    ? owner_.scene_.random.Between(absl::ZeroDuration(), absl::Milliseconds(5))
                                    : absl::ZeroDuration();
    owner_.scene_.events.After(wait, owner_.life, [&owner = owner_, id = id_] {
      const auto found = owner.streams_.find(id);
      if (found != owner.streams_.end()) found->second->Write();
    });
  }
  void Write() {
    pumping_ = false;
    if (ended_ || queue_.empty()) return;
    auto packet = std::make_shared<ServerPacket>();
    packet->server = owner_.life;
    Outgoing& out = queue_.front();
    if (!out.reply || Fill(out, *packet)) {
      if (!out.reply) packet->item.Swap(&out.item);
      queue_.pop_front();
      if (*owner_.unpinned_) {
        *owner_.unpinned_ = false;
        owner_.table_.Retry();
      }
    }
    owner_.scene_.network.Send(id_, owner_.life, ServerPackets(std::move(packet)));
    Pump();
  }
  // The next chunk. True: it was the last.
  bool Fill(Outgoing& out, ServerPacket& packet) {
    const ps::PullReply& reply = *out.reply;
    const auto complete = [&](wire::PullDone& done) {
      done.set_id(reply.id.value());
      done.set_shard(reply.shard.value());
      ps::ToWire(reply.version, *done.mutable_version());
      done.set_unchanged(reply.weights == nullptr);
      done.set_clock_min(reply.clock_min.value());
    };
    if (reply.weights == nullptr) {
      complete(*packet.item.mutable_pull_done());
      return true;
    }
    const ps::SliceView& view = reply.weights->view();
    const absl::Span<const float> values = view.chunk(out.next);
    wire::PullChunk& chunk = *packet.item.mutable_pull();
    chunk.set_id(reply.id.value());
    chunk.set_shard(reply.shard.value());
    chunk.set_offset(out.next * view.chunk_elements());
    chunk.set_elements(values.size());
    ps::ToWire(reply.version, *chunk.mutable_version());
    packet.payload.assign(values.begin(), values.end());
    if (++out.next < view.chunks()) return false;
    complete(*chunk.mutable_done());
    return true;
  }

  ServerProcess& owner_;
  const StreamId id_;
  std::deque<Outgoing> queue_;
  std::map<uint64_t, Clock64> pulls_;
  std::optional<Sender> worker_;
  bool pumping_ = false;
  bool ended_ = false;
};

ServerProcess::ServerProcess(Scene& scene, std::string its_name, std::string its_address)
    : scene_(scene),
      began_(scene.events.Now()),
      back_off_(scene.timeouts.heartbeat / 3),
      replication_(scene, *this, table_, [this] { Look(); }),
      table_(
          scene.options.bugs, scene.job, scene.timeouts, scene.metrics, scene.events.time(),
          {.on_unpinned = [flag = unpinned_] { *flag = true; },
           .on_seeded =
               [this] {
                 seeded_ = true;
                 if (table_.log() != nullptr) table_.log()->Seeded();
                 Keep();
               },
           .on_stores =
               [this](std::vector<ps::StoredShard> stores) {
                 for (ps::StoredShard& stored : stores) {
                   folders_.push_back(stored.folder.string());
                   kept_.push_back({.number = ++last_kept_, .stored = std::move(stored)});
                 }
               },
           .on_stores_gone =
               [this](const std::vector<ShardId>& shards) {
                 for (Kept& kept : kept_) {
                   if (std::find(shards.begin(), shards.end(), kept.stored.shard) == shards.end()) continue;
                   kept.gone = true;
                   std::erase(folders_, kept.stored.folder.string());
                 }
                 DropGone();
               },
           .on_cut = nullptr,
           .on_backup = [this](const wire::ReplicationSource* source) { replication_.OnBackup(source); },
           .open_database = [this](const std::filesystem::path& folder) { return scene_.disk.Open(folder, life); }}) {
  life = scene.events.Begin();
  name = std::move(its_name);
  address = std::move(its_address);
  scene_.network.Listen(*this);
  Register();
  scene_.events.After(scene_.timeouts.heartbeat, life, [this] { Tick(); });
}

ServerProcess::~ServerProcess() {
  kept_.clear();
  scene_.disk.Gone(life);
}

// --- The scheduler ----------------------------------------------------------------------------------------------

void ServerProcess::Register() {
  wire::RegisterServerRequest request;
  request.set_name(name);
  request.set_address(address);
  request.set_job_fingerprint(kFingerprint);
  // Every fourth world is in the middle of a rolling upgrade: its servers take whole sets of members only.
  if (scene_.options.seed % 4 != 0) SetProtocol(request);
  scene_.network.Call<wire::RegisterServerReply>(
      *this, scene_.scheduler(), scene_.timeouts.worker_dead(),
      [request](Host& scheduler) { return SchedulerAt(scheduler).RegisterServer(request); },
      [this](const auto& reply) { Registered(reply); });
}

void ServerProcess::Registered(const absl::StatusOr<wire::RegisterServerReply>& reply) {
  if (ended_) return;
  if (!reply.ok()) {
    const bool may_come = absl::IsUnavailable(reply.status()) || absl::IsDeadlineExceeded(reply.status());
    if (!may_come || scene_.events.Now() >= began_ + scene_.timeouts.startup) return End(reply.status());
    scene_.events.After(back_off_, life, [this] { Register(); });
    back_off_ = std::min(2 * back_off_, scene_.timeouts.notice());
    return;
  }
  identity_ = {JobId(reply->job()), ServerId(reply->server()), Incarnation(reply->incarnation())};
  table_.SetIdentity(identity_);
  heard_ = scene_.events.Now();
  scene_.events.After(scene_.timeouts.heartbeat, life, [this] { Beat(); });
}

void ServerProcess::Beat() {
  if (ended_) return;
  const ps::ShardTable::Progress now = table_.progress();
  wire::HeartbeatRequest request;
  request.set_job(identity_.job.value());
  request.set_role(wire::MEMBER_ROLE_SERVER);
  request.set_member(identity_.server.value());
  request.set_incarnation(identity_.incarnation.value());
  *request.mutable_server() = now.report;
  const bool soon = now.report.backup().in_step() || now.follows;
  scene_.network.Call<wire::HeartbeatReply>(
      *this, scene_.scheduler(), soon ? scene_.timeouts.heartbeat : scene_.timeouts.server_dead(),
      [request](Host& scheduler) { return SchedulerAt(scheduler).Heartbeat(request); },
      [this, begin = scene_.events.Now()](const auto& reply) { Beaten(reply, begin); });
}

void ServerProcess::Beaten(const absl::StatusOr<wire::HeartbeatReply>& reply, absl::Time begin) {
  if (ended_) return;
  if (reply.ok()) {
    if (reply->backup_released() != 0 && table_.log() != nullptr) {
      table_.log()->Released(reply->backup_released());
      Look();
    }
    if (reply->leave()) return End(absl::OkStatus());
    heard_ = scene_.events.Now();
  } else if (!absl::IsUnavailable(reply.status()) && !absl::IsDeadlineExceeded(reply.status())) {
    return End(reply.status());
  } else if (scene_.events.Now() - heard_ >= absl::Seconds(scene_.job.durability().scheduler_return_s())) {
    return End(reply.status());
  }
  const absl::Duration took = reply.ok() ? absl::ZeroDuration() : scene_.events.Now() - begin;
  scene_.events.After(std::max(absl::ZeroDuration(), scene_.timeouts.heartbeat - took), life, [this] { Beat(); });
}

absl::Status ServerProcess::Install(const wire::InstallShardsRequest& request) {
  if (ended_) return absl::UnavailableError("the server is stopping");
  const bool followed = table_.feed() != nullptr;
  const absl::Status status = table_.Install(request);
  if (!status.ok()) return status;
  if (request.has_backup_of()) {
    follows_ = request;
    return status;
  }
  generation_ = Generation(request.generation());
  std::vector<ShardId> wanted;
  for (const wire::ShardSpec& spec : request.shards()) wanted.push_back(ShardId(spec.shard()));
  std::sort(wanted.begin(), wanted.end());
  if (wanted == shards_) return status;
  // What it had already does not move; what it has not followed it goes on with from snapshots.
  const bool moves = request.moves() && (followed || !shards_.empty());
  scene_.counts.failovers += followed && !moves;
  scene_.Tell(name,
              moves      ? " has now "
              : followed ? " takes over "
                         : " installs ",
              request.shards_size(), " shards of generation ", request.generation(), ", lineage ",
              request.restore_lineage());
  for (const ShardId shard : shards_) {
    if (!std::binary_search(wanted.begin(), wanted.end(), shard)) known_.erase(shard);
  }
  for (const ShardId shard : wanted) {
    if (moves && std::find(shards_.begin(), shards_.end(), shard) == shards_.end()) moved_.insert(shard);
  }
  shards_ = std::move(wanted);
  if (shards_.empty()) scene_.ledger.Deserted(life);
  seeded_ = true;
  Look();
  Keep();
  return status;
}

absl::StatusOr<wire::SetMembersReply> ServerProcess::SetMembers(const wire::SetMembersRequest& request) {
  if (ended_) return absl::UnavailableError("the server is stopping");
  const std::set<Sender>* const known = scene_.ledger.MembersOf(life);
  const std::set<Sender> before = known == nullptr ? std::set<Sender>() : *known;
  std::set<uint32_t> changed(request.gone().begin(), request.gone().end());
  for (const wire::Member& member : request.members()) changed.insert(member.worker());
  std::set<Sender> members;
  if (request.has_since_epoch()) members = before;
  std::erase_if(members, [&](const Sender& member) { return changed.contains(member.worker.value()); });
  for (const wire::Member& member : request.members()) {
    members.insert({WorkerId(member.worker()), Incarnation(member.incarnation())});
  }
  // Pulls that it lets go are answered while it is set.
  scene_.ledger.Members(life, members);
  absl::StatusOr<wire::SetMembersReply> reply = table_.SetMembers(request);
  if (!reply.ok()) scene_.ledger.MembersStay(life, before);
  // What it takes for members has no meaning any more.
  if (shards_.empty()) scene_.ledger.Deserted(life);
  if (reply.ok() && Epoch(request.epoch()) < epoch_) {
    scene_.violated(absl::StrCat(name, " takes the members of epoch ", request.epoch(), "; it had those of epoch ",
                                 epoch_.value()));
  }
  if (reply.ok()) epoch_ = Epoch(request.epoch());
  Look();
  return reply;
}

absl::Status ServerProcess::Take(const wire::TakeShardsRequest& request) {
  if (ended_) return absl::UnavailableError("the server is stopping");
  return table_.Take(request);
}

void ServerProcess::Stop(const wire::StopRequest& /*request*/) { End(absl::OkStatus()); }

void ServerProcess::End(const absl::Status& status) {
  if (std::exchange(ended_, true)) return;
  scene_.Tell(name, " ends: ", status.ok() ? "told to" : std::string(status.message()));
  if (status.ok() && scene_.done) {
    scene_.parting(*this);
    Final();
  }
  replication_.Close();
  scene_.ended(*this, status);
}

void ServerProcess::Final() {
  const std::set<Sender>* const members = scene_.ledger.MembersOf(life);
  for (const ShardId shard : shards_) {
    const std::optional<ps::ShardSnapshot> snapshot = table_.TakeSnapshot(shard);
    if (!snapshot) continue;
    std::vector<float> weights(snapshot->numbers.weights.elements());
    snapshot->numbers.weights.CopyTo(absl::MakeSpan(weights));
    scene_.ledger.Final(life, shard, weights, members == nullptr || members->empty());
  }
}

// --- Copies -----------------------------------------------------------------------------------------------------

bool ServerProcess::IsFollowedBy(const ServerProcess& copy) const {
  const wire::BackupProgress state = backup();
  const StreamId stream = copy.replication_.followed();
  return serves() && state.in_step() && !state.lost() && copy.table_.feed() != nullptr &&
         copy.table_.feed()->in_step() && replication_.Serves(stream) && scene_.network.Whole(stream);
}

std::optional<std::string> ServerProcess::CompareWith(ServerProcess& copy) {
  const bool stopped = scene_.events.Stopped(life) || scene_.events.Stopped(copy.life);
  if (stopped || !IsFollowedBy(copy) || !scene_.network.Quiet(copy.replication_.followed())) return std::nullopt;
  const wire::ServerProgress here = table_.progress().report, there = copy.table_.progress().report;
  if (here.version_min() != there.version_min() || here.version_max() != there.version_max()) {
    return absl::StrCat("is at versions ", here.version_min(), " to ", here.version_max(), ", and its copy in ",
                        copy.name, " at ", there.version_min(), " to ", there.version_max(),
                        " though nothing is on its way");
  }
  wire::InstallShardsRequest promote = copy.follows_;
  promote.clear_backup_of();
  promote.set_promote(true);
  promote.set_generation(promote.generation() + 1);
  promote.set_restore_lineage(static_cast<uint32_t>(promote.generation()));
  if (const absl::Status taken = copy.table_.Install(promote); !taken.ok()) {
    return absl::StrCat("has a copy in ", copy.name, " that cannot take over: ", taken.message());
  }
  for (const ShardId shard : shards_) {
    if (std::string different = Difference(shard, copy); !different.empty()) {
      return absl::StrCat("has another shard ", shard.value(), " than its copy in ", copy.name, ": ", different);
    }
  }
  ++scene_.counts.copies;
  return "";
}

std::string ServerProcess::Difference(ShardId shard, const ServerProcess& copy) const {
  const std::optional<ps::ShardSnapshot> here = table_.TakeSnapshot(shard), there = copy.table_.TakeSnapshot(shard);
  if (!here || !there) return "one has no weights";
  if (here->engine.version.number != there->engine.version.number) return "its version";
  if (here->engine.samples_applied != there->engine.samples_applied) return "its samples";
  const auto same = [](const ps::SliceView& a, const ps::SliceView& b) {
    std::vector<float> one(a.elements()), other(b.elements());
    a.CopyTo(absl::MakeSpan(one));
    b.CopyTo(absl::MakeSpan(other));
    return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
  };
  if (!same(here->numbers.weights, there->numbers.weights)) return "its weights";
  for (size_t i = 0; i < here->numbers.arrays.size(); ++i) {
    if (!same(here->numbers.arrays[i], there->numbers.arrays[i])) return "what its optimizer keeps";
  }
  for (const ps::WorkerClock& worker : here->engine.workers) {
    const auto known = std::find_if(there->engine.workers.begin(), there->engine.workers.end(),
                                    [&](const ps::WorkerClock& other) { return other.sender == worker.sender; });
    const bool heard = known != there->engine.workers.end();
    if (heard && known->clock == worker.clock) continue;
    return absl::StrCat("worker ", worker.sender.worker.value(), " is at clock ", worker.clock.value(), " and ",
                        heard ? absl::StrCat("at ", known->clock.value()) : "unknown");
  }
  return "";
}

// --- Time -------------------------------------------------------------------------------------------------------

void ServerProcess::Tick() {
  if (ended_) return;
  table_.Tick();
  replication_.Tick();
  *unpinned_ = false;
  Look();
  scene_.events.After(scene_.timeouts.heartbeat, life, [this] { Tick(); });
}

void ServerProcess::Look() {
  if (shards_.empty()) return;  // what it has is another's
  const wire::ServerProgress now = table_.progress().report;
  // With two shards at most, every step of one is seen in these.
  const bool same = shards_.size() <= 2 && now.version_min() == seen_min_ && now.version_max() == seen_max_;
  if (same && !seeded_) return;
  seen_min_ = now.version_min();
  seen_max_ = now.version_max();
  seeded_ = false;
  for (const ShardId shard : shards_) {
    const std::optional<ps::ShardSnapshot> snapshot = table_.TakeSnapshot(shard);
    if (!snapshot) continue;
    std::vector<float> weights(snapshot->numbers.weights.elements());
    snapshot->numbers.weights.CopyTo(absl::MakeSpan(weights));
    const Version& version = snapshot->engine.version;
    if (std::exchange(known_[shard], true)) {
      scene_.ledger.Changed(life, shard, version, weights);
    } else {
      const bool moved = moved_.erase(shard) > 0;
      scene_.ledger.Installed(life, shard, version, weights,
                              moved                          ? Ledger::From::kMove
                              : version.lineage > Lineage(1) ? Ledger::From::kRestore
                                                             : Ledger::From::kNothing);
    }
  }
}

StreamEnd* ServerProcess::Accept(StreamId stream, Method method) {
  if (ended_) return nullptr;
  if (method == Method::kReplicate) return replication_.Accept(stream);
  return (streams_[stream] = std::make_unique<Stream>(*this, stream)).get();
}

// --- Snapshots --------------------------------------------------------------------------------------------------

void ServerProcess::Keep() {
  if (ended_ || writing_) return;
  const absl::Duration interval = absl::Seconds(scene_.job.durability().snapshot_every_s());
  const absl::Time now = scene_.events.Now();
  absl::Time next = now + interval;
  for (Kept& kept : kept_) {
    if (kept.due > now) {
      next = std::min(next, kept.due);
      continue;
    }
    if (!Open(kept)) {
      next = std::min(next, kept.due);
      continue;
    }
    std::optional<ps::ShardSnapshot> taken = table_.TakeSnapshot(kept.stored.shard);
    if (!taken) continue;
    kept.due = now + interval;
    const std::vector<ps::KeptSnapshot>& before = kept.stored.store->kept();
    if (!before.empty() && before.front().version == taken->engine.version) continue;
    writing_ = {kept.number, *std::move(taken)};
    const bool slow = scene_.random.Chance(0.1);
    scene_.events.After(scene_.random.Between(absl::Milliseconds(1), absl::Milliseconds(slow ? 900 : 40)), life,
                        [this] { Written(); });
    return;
  }
  const uint64_t alarm = ++keeping_;
  scene_.events.At(next, life, [this, alarm] {
    if (alarm == keeping_) Keep();
  });
}

bool ServerProcess::Open(Kept& kept) {
  if (kept.stored.store != nullptr) return true;
  absl::StatusOr<std::unique_ptr<ps::SnapshotStore>> store = kept.stored.open();
  if (store.ok()) {
    kept.stored.store = *std::move(store);
    return true;
  }
  const bool in_use = absl::IsAborted(store.status());
  const absl::Duration interval = absl::Seconds(scene_.job.durability().snapshot_every_s());
  kept.due = scene_.events.Now() + (in_use ? std::min(kOpenAgain, interval) : interval);
  if (in_use) return false;
  ++scene_.counts.snapshots_failed;
  table_.SnapshotDone(kept.stored.shard, store.status());
  return false;
}

ServerProcess::Kept& ServerProcess::BeingWritten() {
  return *std::find_if(kept_.begin(), kept_.end(),
                       [this](const Kept& kept) { return kept.number == writing_->number; });
}

void ServerProcess::DropGone() {
  std::erase_if(kept_,
                [this](const Kept& kept) { return kept.gone && !(writing_ && writing_->number == kept.number); });
}

void ServerProcess::Written() {
  if (ended_ || !writing_) return;
  ps::StoredShard& stored = BeingWritten().stored;
  const Writing writing = *std::exchange(writing_, std::nullopt);
  const absl::StatusOr<ps::KeptSnapshot> kept = stored.store->Write(writing.snapshot);
  ++(kept.ok() ? scene_.counts.snapshots : scene_.counts.snapshots_failed);
  table_.SnapshotDone(stored.shard, kept);
  DropGone();
  Look();
  Keep();
}

void ServerProcess::DieWriting(uint64_t steps) {
  if (!writing_) return;
  scene_.disk.StopAfter(life, steps);
  BeingWritten().stored.store->Write(writing_->snapshot).status().IgnoreError();
}

}  // namespace slackline::world
