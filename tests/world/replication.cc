#include "tests/world/replication.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

namespace slackline::world {
namespace {

struct ReplicaPacket {
  wire::ReplicaFrame frame;
  std::vector<std::byte> payload;
};
using ReplicaPackets = std::shared_ptr<const ReplicaPacket>;

// Of what is written, how long until the next may be.
absl::Duration WriteTime(Scene& scene) {
  return scene.random.Chance(0.2) ? scene.random.Between(absl::ZeroDuration(), absl::Milliseconds(5))
                                  : absl::ZeroDuration();
}

}  // namespace

// --- The server's side ------------------------------------------------------------------------------------------

class Replication::Follower : public ps::ReplicaSink, public StreamEnd {
 public:
  Follower(Replication& owner, StreamId id) : owner_(owner), id_(id) {}

  // --- ps::ReplicaSink ---
  void Wake() override { Pump(); }
  void End(const absl::Status& status) override {
    if (std::exchange(ended_, true)) return;
    if (std::exchange(attached_, false)) {
      ps::ReplicaLog& log = *owner_.table_.log();
      log.Detached(*this, status);
      // The planted bug: the server takes its backup for released, though nobody said so.
      if (owner_.scene_.options.bugs.no_fencing) log.Released(log.progress().attachment());
    }
    owner_.scene_.network.Close(id_, owner_.host_.life, status);
    owner_.scene_.events.After(absl::ZeroDuration(), owner_.host_.life,
                               [&owner = owner_, id = id_] { owner.streams_.erase(id); });
  }

  bool attached() const { return attached_; }
  // The planted bug `no_fencing`: the server's lease never ends while it has the stream.
  void Lease() {
    if (!attached_) return;
    const absl::Time now = owner_.scene_.events.Now();
    if (now - heard_ > owner_.scene_.timeouts.worker_dead()) return End(absl::DeadlineExceededError("it is silent"));
    owner_.table_.log()->Handled(*this, handled_, static_cast<uint64_t>(absl::ToUnixMicros(now))).IgnoreError();
  }

  // --- StreamEnd ---
  void Received(const std::any& what) override {
    if (ended_) return;
    const auto& frame = std::any_cast<const wire::BackupFrame&>(what);
    heard_ = owner_.scene_.events.Now();
    handled_ = frame.handled();
    if (const absl::Status status = Receive(frame); !status.ok()) {
      End(status);
    }
    Pump();
    owner_.look_();
  }
  void Closed(const absl::Status& /*status*/) override { End(absl::UnavailableError("the backup is gone")); }

 private:
  absl::Status Receive(const wire::BackupFrame& frame) {
    if (attached_) return owner_.table_.log()->Handled(*this, frame.handled(), frame.echo_us());
    absl::Status status = owner_.table_.AttachBackup(*this, frame.hello());
    attached_ = status.ok();
    return status;
  }
  void Pump() {
    if (ended_ || writing_ || owner_.table_.log() == nullptr) return;
    writing_ = true;  // NextFrame() may wake this again
    auto packet = std::make_shared<ReplicaPacket>();
    std::vector<rpc::Attachment> pieces;
    writing_ = owner_.table_.log()->NextFrame(*this, packet->frame, pieces);
    if (!writing_) return;
    for (const rpc::Attachment& piece : pieces) {
      packet->payload.insert(packet->payload.end(), piece.bytes.begin(), piece.bytes.end());
      piece.release();
    }
    owner_.scene_.network.Send(id_, owner_.host_.life, ReplicaPackets(std::move(packet)));
    owner_.scene_.events.After(WriteTime(owner_.scene_), owner_.host_.life, [&owner = owner_, id = id_] {
      const auto found = owner.streams_.find(id);
      if (found == owner.streams_.end()) return;
      found->second->writing_ = false;
      found->second->Pump();
    });
  }

  Replication& owner_;
  const StreamId id_;
  absl::Time heard_;
  uint64_t handled_ = 0;
  bool attached_ = false;
  bool writing_ = false;
  bool ended_ = false;
};

// --- The backup's side ------------------------------------------------------------------------------------------

class Replication::Link : public StreamEnd {
 public:
  explicit Link(Replication& owner) : owner_(owner) {}

  void Follow(const std::string& address) {
    wanted_ = true;
    address_ = address;
    if (stream_ != 0) return Break();  // the next one is Tick()'s
    Connect();
  }
  void Stop() {
    wanted_ = false;
    if (stream_ != 0) Break();
  }
  void Tick() {
    if (stream_ == 0) {
      if (wanted_) Connect();
    } else if (Now() - heard_ > owner_.scene_.timeouts.worker_dead()) {
      Break();
    }
  }
  StreamId stream() const { return stream_; }

  // --- StreamEnd ---
  void Received(const std::any& what) override {
    heard_ = Now();
    let_in_ = true;
    const auto packet = std::any_cast<ReplicaPackets>(what);
    const absl::Status status =
        owner_.table_.Follow(packet->frame, rpc::Payload({packet->payload.data(), packet->payload.size()}, packet));
    if (!status.ok()) {
      owner_.scene_.violated(absl::StrCat(owner_.host_.name, " cannot follow its server: ", status.ToString()));
      return Break();
    }
    Acknowledge();
  }
  void Closed(const absl::Status& status) override {
    stream_ = 0;
    if (wanted_) owner_.scene_.Tell(owner_.host_.name, " does not follow: ", std::string(status.message()));
  }

 private:
  absl::Time Now() const { return owner_.scene_.events.Now(); }
  void Connect() {
    heard_ = Now();
    let_in_ = writing_ = false;
    said_handled_ = said_echo_ = 0;
    stream_ = owner_.scene_.network.Open(owner_.host_, address_, *this, Method::kReplicate);
    const std::optional<wire::BackupHello> hello = owner_.table_.BeginFollowing();
    if (!hello) return Break();
    wire::BackupFrame frame;
    *frame.mutable_hello() = *hello;
    Say(frame);
  }
  void Break() { owner_.scene_.network.Close(std::exchange(stream_, 0), owner_.host_.life, absl::CancelledError("")); }
  void Acknowledge() {
    const ps::BackupFeed* const feed = owner_.table_.feed();
    if (feed == nullptr || stream_ == 0 || writing_ || !let_in_) return;
    if (feed->handled() == said_handled_ && feed->echo_us() == said_echo_) return;
    said_handled_ = feed->handled();
    said_echo_ = feed->echo_us();
    wire::BackupFrame frame;
    frame.set_handled(said_handled_);
    frame.set_echo_us(said_echo_);
    Say(frame);
  }
  void Say(const wire::BackupFrame& frame) {
    writing_ = true;
    owner_.scene_.network.Send(stream_, owner_.host_.life, frame);
    owner_.scene_.events.After(WriteTime(owner_.scene_), owner_.host_.life, [this, stream = stream_] {
      if (stream != stream_) return;
      writing_ = false;
      Acknowledge();
    });
  }

  Replication& owner_;
  std::string address_;
  bool wanted_ = false;
  StreamId stream_ = 0;
  absl::Time heard_;
  bool let_in_ = false;  // something has come
  bool writing_ = false;
  uint64_t said_handled_ = 0;
  uint64_t said_echo_ = 0;
};

// --- Both -------------------------------------------------------------------------------------------------------

Replication::Replication(Scene& scene, const Host& host, FaultyTable& table, std::function<void()> look)
    : scene_(scene), host_(host), table_(table), look_(std::move(look)), link_(std::make_unique<Link>(*this)) {}

Replication::~Replication() = default;

StreamEnd* Replication::Accept(StreamId stream) {
  return (streams_[stream] = std::make_unique<Follower>(*this, stream)).get();
}

void Replication::OnBackup(const wire::ReplicationSource* source) {
  source == nullptr ? link_->Stop() : link_->Follow(source->address());
}

void Replication::Tick() {
  if (table_.log() != nullptr) table_.log()->Tick();
  if (scene_.options.bugs.no_fencing) {
    for (const auto& [id, stream] : streams_) stream->Lease();
  }
  link_->Tick();
}

void Replication::Close() {
  if (table_.log() != nullptr) table_.log()->Stopping();
  link_->Stop();
  for (const auto& [id, stream] : streams_) stream->End(absl::UnavailableError("the server is stopping"));
}

bool Replication::Serves(StreamId stream) const {
  const auto found = streams_.find(stream);
  return found != streams_.end() && found->second->attached();
}

StreamId Replication::followed() const { return link_->stream(); }

}  // namespace slackline::world
