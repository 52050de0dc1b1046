// A backup under any sequence of frames, breaks, time and promotion; once it has taken over, also under messages of
// workers and of a backup of its own. After each event the process still runs, and a backup that is not in step has not
// taken over.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/codec/wire_encoding.h"
#include "common/job/job_file.h"
#include "common/log/logging.h"
#include "histories.pb.h"
#include "ps/service/shard_table.h"
#include "tests/fuzz/text_input.h"
#include "tests/fuzz/worker_frames.h"

namespace slackline::fuzz {
namespace {

constexpr uint64_t kJob = 7;
constexpr uint32_t kShards = 2;
constexpr uint64_t kElements = 2000;
constexpr uint32_t kPeers = 3;

job::Job MakeJob(const BackupHistory& history) {
  job::Job job;
  job.mutable_optimizer()->set_lr(0.1);
  job.mutable_optimizer()->set_momentum(0.9);
  job.mutable_training()->set_batch_size(1);
  job.mutable_wire()->set_chunk_bytes(4096);
  job.mutable_cluster()->set_workers(3);
  constexpr job::Consistency::Mode kModes[] = {job::Consistency::ASYNC, job::Consistency::SSP, job::Consistency::BSP,
                                               job::Consistency::QUORUM};
  job.mutable_consistency()->set_mode(kModes[history.mode() % std::size(kModes)]);
  job.mutable_durability()->set_mode(job::Durability::REPLICATED);
  return Resolve(job);
}

class Sink : public ps::ReplicaSink {
 public:
  void Wake() override { awake = true; }
  void End(const absl::Status& status) override {
    SLACKLINE_CHECK(!status.ok());
    ended = true;
  }
  bool awake = false;
  bool ended = false;
};

class Backup {
 public:
  explicit Backup(const BackupHistory& history)
      : job_(MakeJob(history)),
        table_(job_, Timeouts(), service_metrics_, time_,
               {.on_unpinned = [] {},
                .on_seeded = [] {},
                .on_stores = nullptr,
                .on_cut = nullptr,
                .on_backup = [this](const wire::ReplicationSource* source) { follows_ = source != nullptr; }}) {
    table_.SetIdentity({JobId(kJob), ServerId(1), Incarnation(2)});
    wire::InstallShardsRequest install = Install();
    install.set_generation(1);
    install.mutable_backup_of()->set_incarnation(1);
    SLACKLINE_CHECK(table_.Install(install).ok() && follows_);
    Open();
  }
  ~Backup() {
    for (Peer& peer : peers_) table_.Closed(peer);
  }

  void Play(const BackupEvent& event) {
    Happen(event);
    for (Peer& peer : peers_) {
      if (peer.ended()) Close(peer);
    }
  }

 private:
  void Happen(const BackupEvent& event) {
    switch (event.event_case()) {
      case BackupEvent::kFrame:
        return Follow(MakeRight(event.frame()));
      case BackupEvent::kRaw:
        return Follow(event.raw());
      case BackupEvent::kAgain:
        return Open();
      case BackupEvent::kPassMs:
        time_.Advance(absl::Milliseconds(event.pass_ms()));
        table_.Tick();
        if (table_.log() != nullptr) table_.log()->Tick();
        return;
      case BackupEvent::kPromote:
        return Promote(event.promote());
      case BackupEvent::kSaid:
        return Hear(event.said());
      case BackupEvent::kReleased:
        if (table_.log() != nullptr) table_.log()->Released(event.released());
        return;
      case BackupEvent::kWorker:
        return Receive(event.worker());
      case BackupEvent::kMembers:
        return SetMembers(event.members());
      case BackupEvent::EVENT_NOT_SET:
        return;
    }
  }

  static wire::InstallShardsRequest Install() {
    wire::InstallShardsRequest install;
    install.set_job(kJob);
    install.set_server(1);
    install.set_server_incarnation(2);
    install.set_replicated(true);
    install.set_trained_elements(kShards * kElements - 100);
    install.set_samples_per_epoch(1000);
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      wire::ShardSpec& spec = *install.add_shards();
      spec.set_shard(shard);
      spec.set_begin(shard * kElements);
      spec.set_end((shard + 1) * kElements);
    }
    return install;
  }

  void Open() { open_ = table_.BeginFollowing().has_value(); }

  static uint64_t BytesOf(const wire::ReplicaItem& item, const std::string& some) {
    if (item.has_array()) return item.array().elements() * sizeof(float);
    if (!item.has_bytes()) return 0;
    const absl::StatusOr<codec::Codec> codec = CodecFromWire(item.bytes().encoding());
    if (!codec.ok()) return 0;
    return codec->encoding == codec::Encoding::kTopK ? some.size() / 8 * 8
                                                     : codec::EncodedBytesMax(*codec, item.bytes().elements());
  }
  static wire::ReplicaFrame MakeRight(wire::ReplicaFrame frame) {
    const std::string some = frame.payload().empty() ? std::string(1, '\0') : frame.payload();
    std::string made;
    for (wire::ReplicaItem& item : *frame.mutable_items()) {
      item.set_payload_bytes(0);
      if (std::max(item.array().elements(), item.bytes().elements()) > kMadeBytesMax / sizeof(float)) continue;
      const uint64_t bytes = BytesOf(item, some);
      item.set_payload_bytes(static_cast<uint32_t>(bytes));
      const size_t end = made.size() + bytes;
      while (made.size() < end) made.append(some, 0, end - made.size());
    }
    frame.set_payload(made);
    return frame;
  }

  void Follow(const wire::ReplicaFrame& said) {
    if (!open_) return;
    const grpc::Slice slice(said.SerializeAsString());
    wire::ReplicaFrame frame;
    const absl::StatusOr<rpc::Payload> payload = rpc::Parse(grpc::ByteBuffer(&slice, 1), frame);
    SLACKLINE_CHECK(payload.ok());
    const absl::Status status = table_.Follow(frame, *payload);
    if (status.ok()) return;
    SLACKLINE_CHECK(!status.message().empty());
    open_ = false;
  }

  void Promote(uint32_t generation) {
    wire::InstallShardsRequest install = Install();
    install.set_generation(generation);
    install.set_restore_lineage(generation);
    install.set_promote(true);
    const bool may = table_.feed() == nullptr || table_.feed()->in_step();
    const bool was = follows_;
    if (table_.Install(install).ok()) generation_ = generation;
    SLACKLINE_CHECK(may || follows_ == was);
    if (!follows_) open_ = false;
  }

  void Receive(const FrameEvent& event) {
    Peer& peer = peers_[event.peer() % kPeers];
    wire::WorkerFrame said = event.frame(), frame;
    said.set_job(kJob);
    said.set_generation(generation_);
    Lengthen(event.times(), said);
    MakeItemsRight(said, "");
    const auto found = rpc::FoundFrame::Find(Cut(event, said.SerializeAsString()), table_.frame_limits());
    const absl::StatusOr<rpc::Payload> payload = found.ok() ? found->Parse(frame) : found.status();
    if (!payload.ok() || table_.Receive(peer, frame, *payload).has_value()) Close(peer);
  }

  void Close(Peer& peer) {
    table_.Closed(peer);
    peer = Peer();
  }

  void SetMembers(wire::SetMembersRequest request) {
    request.set_job(kJob);
    request.set_generation(generation_);
    table_.SetMembers(request).status().IgnoreError();
  }

  void Hear(const wire::BackupFrame& said) {
    if (said.has_hello()) {
      auto sink = std::make_unique<Sink>();
      if (!table_.AttachBackup(*sink, said.hello()).ok()) return;
      sinks_.push_back(std::move(sink));
    }
    if (sinks_.empty() || sinks_.back()->ended || table_.log() == nullptr) return;
    wire::ReplicaFrame frame;
    std::vector<rpc::Attachment> pieces;
    table_.log()->NextFrame(*sinks_.back(), frame, pieces);
    const absl::Status status = table_.log()->Handled(*sinks_.back(), said.handled(), said.echo_us());
    if (!status.ok()) table_.log()->Detached(*sinks_.back(), status);
  }

  Metrics metrics_;
  ps::ServiceMetrics service_metrics_{metrics_};
  ManualTime time_;
  const job::Job job_;
  bool follows_ = false;
  bool open_ = false;
  uint64_t generation_ = 1;
  Peer peers_[kPeers];
  std::vector<std::unique_ptr<Sink>> sinks_;
  ps::ShardTable table_;
};

}  // namespace

std::unique_ptr<google::protobuf::Message> NewInput() { return std::make_unique<BackupHistory>(); }

}  // namespace slackline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool quiet = (slackline::log::Initialise("fuzz", slackline::log::Least::kWarning), true);
  slackline::fuzz::BackupHistory history;
  if (!quiet || !slackline::fuzz::ParseText(data, size, history)) return 0;
  slackline::fuzz::Backup backup(history);
  for (const slackline::fuzz::BackupEvent& event : history.events()) backup.Play(event);
  return 0;
}
