// A server's whole data path except gRPC, under any sequence of frames, streams, sets of members and time. After each
// event the process still runs, versions have not gone back, a refused frame has changed no version and staged nothing,
// and staged bytes are within their budget.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/job/job_file.h"
#include "common/log/logging.h"
#include "common/shm/segment.h"
#include "histories.pb.h"
#include "ps/service/shard_table.h"
#include "tests/fuzz/text_input.h"
#include "tests/fuzz/worker_frames.h"

namespace slackline::fuzz {
namespace {

constexpr uint64_t kJob = 7;
constexpr uint64_t kGeneration = 1;
constexpr uint32_t kServer = 1, kPeers = 4, kShards = 2;
constexpr uint64_t kElements = 3000;

job::Job MakeJob(const ServerHistory& history) {
  job::Job job;
  job.mutable_optimizer()->set_lr(0.1);
  job.mutable_training()->set_batch_size(1);
  job.mutable_wire()->set_chunk_bytes(4096);
  job.mutable_cluster()->set_workers(3);
  job.mutable_consistency()->set_mode(
      static_cast<job::Consistency::Mode>(1 + history.mode() % job::Consistency::Mode_MAX));
  job.mutable_wire()->set_window(1 + history.window() % 4);
  if (history.delay_compensation()) job.mutable_consistency()->set_delay_compensation(job::DelayCompensation::CONSTANT);
  job.mutable_wire()->set_same_host(history.shared_memory() ? job::Wire::SHARED_MEMORY : job::Wire::TCP);
  return Resolve(job);
}

class Server {
 public:
  explicit Server(const ServerHistory& history)
      : job_(MakeJob(history)),
        bare_(history.bare()),
        table_(job_, Timeouts(), service_metrics_, time_,
               {.on_unpinned = [] {},
                .on_seeded = [] {},
                .on_stores = nullptr,
                .on_cut = nullptr,
                .on_backup = [](const wire::ReplicationSource*) {}}) {
    table_.SetIdentity({JobId(kJob), ServerId(kServer), Incarnation(1)});
    if (!bare_) Prepare();
  }
  ~Server() {
    for (uint32_t number = 0; number < kPeers; ++number) Close(number);
  }

  void Play(const ServerEvent& event) {
    switch (event.event_case()) {
      case ServerEvent::kFrame:
        return Receive(event.frame());
      case ServerEvent::kClose:
        return Close(event.close() % kPeers);
      case ServerEvent::kPassMs:
        return Pass(absl::Milliseconds(event.pass_ms()));
      case ServerEvent::kMembers:
        return SetMembers(event.members());
      case ServerEvent::kInstall:
        return Install(event.install());
      case ServerEvent::kSegment:
        return Grant(event.segment());
      case ServerEvent::kRead:
        return PeerAt(event.read() % kPeers).Read();
      case ServerEvent::kTake:
        return Take(event.take());
      case ServerEvent::kSteps:
        return Step(event.steps());
      case ServerEvent::EVENT_NOT_SET:
        return;
    }
  }

 private:
  void Prepare() {
    wire::InstallShardsRequest install;
    install.set_job(kJob);
    install.set_generation(kGeneration);
    install.set_server(kServer);
    install.set_trained_elements(2 * kElements - 100);
    install.set_samples_per_epoch(1000);
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      wire::ShardSpec& spec = *install.add_shards();
      spec.set_shard(shard);
      spec.set_begin(shard * kElements);
      spec.set_end((shard + 1) * kElements);
      spec.set_server(kServer);
    }
    SLACKLINE_CHECK(table_.Install(install).ok());
    wire::SetMembersRequest members;
    members.set_epoch(1);
    for (uint32_t worker = 1; worker <= 3; ++worker) {
      wire::Member& member = *members.add_members();
      member.set_worker(worker);
      member.set_incarnation(worker);
    }
    SetMembers(members);
  }

  // A model that would fit this machine, but not a fuzzer, is nobody's mistake.
  template <typename Request>
  static bool FitsOnlyTheMachine(const Request& request) {
    static constexpr uint64_t kSmall = 1 << 20, kImpossible = uint64_t{1} << 40;
    return std::any_of(request.shards().begin(), request.shards().end(), [](const wire::ShardSpec& spec) {
      const uint64_t elements = spec.end() - spec.begin();
      return elements > kSmall && elements < kImpossible;
    });
  }

  void Install(const wire::InstallShardsRequest& request) {
    if (!FitsOnlyTheMachine(request)) table_.Install(request).IgnoreError();
  }

  void Take(const wire::TakeShardsRequest& request) {
    if (!FitsOnlyTheMachine(request)) table_.Take(request).IgnoreError();
  }

  void SetMembers(wire::SetMembersRequest request) {
    if (request.job() == 0) request.set_job(kJob);
    if (request.generation() == 0) request.set_generation(kGeneration);
    table_.SetMembers(request).status().IgnoreError();
  }

  Peer& PeerAt(uint32_t number) {
    std::unique_ptr<Peer>& peer = peers_[number];
    if (peer != nullptr && peer->ended()) Close(number);
    if (peer == nullptr) peer = std::make_unique<Peer>();
    return *peer;
  }

  void Close(uint32_t number) {
    std::unique_ptr<Peer>& peer = peers_[number];
    if (peer == nullptr) return;
    table_.Closed(*peer);
    peer.reset();
  }

  void Pass(absl::Duration duration) {
    time_.Advance(duration);
    table_.Tick();
    table_.Retry();
  }

  void Grant(const SegmentEvent& event) {
    std::shared_ptr<const shm::MappedSegment> push_segment;
    if (event.bytes() > 0) {
      const auto segment = shm::Segment::Create({.name = "fuzz", .bytes = 1 + event.bytes() % (64 << 10)});
      SLACKLINE_CHECK(segment.ok());
      auto mapped = shm::MappedSegment::Map(shm::Descriptor(::dup((*segment)->descriptor()->get())),
                                            {.bytes_min = 1, .bytes_max = 1 << 20});
      SLACKLINE_CHECK(mapped.ok());
      push_segment = *std::move(mapped);
    }
    wire::SegmentRequest request = event.request();
    if (request.job() == 0) request.set_job(kJob);
    const auto grant = table_.GrantSegments(request, std::move(push_segment));
    if (grant.ok()) token_ = grant->offer.token();
  }

  // So that most frames get past the first checks.
  void MakeRight(wire::WorkerFrame& frame) const {
    frame.set_job(kJob);
    frame.set_generation(kGeneration);
    MakeItemsRight(frame, token_);
  }

  // Right pushes in a row, as long as each is answered at once: clocks that differ from shard to shard.
  void Step(const StepsEvent& event) {
    constexpr uint32_t kStepsMax = 100;
    Peer& peer = PeerAt(event.peer() % kPeers);
    for (uint32_t left = event.count() % kStepsMax; left > 0; --left) {
      const uint64_t next = peer.answer(event.shard()).sequence() + 1;
      FrameEvent frame;
      frame.set_peer(event.peer());
      wire::PushChunk& push = *frame.mutable_frame()->add_items()->mutable_push();
      push.set_shard(event.shard());
      push.set_sequence(next);
      push.set_elements(kElements);
      push.set_encoding(wire::ENCODING_INT8);
      wire::PushCommit& commit = *push.mutable_commit();
      commit.mutable_base()->set_lineage(1);
      if (next > 1) *commit.mutable_base() = peer.answer(event.shard()).version();
      commit.set_samples(1);
      Receive(frame);
      if (peers_[event.peer() % kPeers].get() != &peer || peer.answer(event.shard()).sequence() != next) return;
    }
  }

  std::vector<bool> Ended() const {
    std::vector<bool> ended;
    for (const auto& [number, peer] : peers_) ended.push_back(peer == nullptr || peer->ended());
    return ended;
  }

  void Receive(const FrameEvent& event) {
    const uint32_t number = event.peer() % kPeers;
    Peer& peer = PeerAt(number);
    wire::WorkerFrame said = event.frame(), frame;
    Lengthen(event.times(), said);
    if (!event.as_it_is()) MakeRight(said);
    const rpc::FrameLimits limits = table_.frame_limits();
    const absl::StatusOr<rpc::FoundFrame> found = rpc::FoundFrame::Find(Cut(event, said.SerializeAsString()), limits);
    if (!found.ok()) {
      SLACKLINE_CHECK(said.ByteSizeLong() > limits.header_bytes_max ||
                      static_cast<size_t>(said.items_size()) + 2 > limits.fields_max);
      return Close(number);
    }
    const absl::StatusOr<rpc::Payload> payload = found->Parse(frame);
    SLACKLINE_CHECK(payload.ok());
    peer.Begin();
    const std::vector<bool> ended = Ended();
    const wire::ServerProgress before = table_.progress().report;
    const std::optional<absl::Status> end = table_.Receive(peer, frame, *payload);
    const wire::ServerProgress after = table_.progress().report;
    SLACKLINE_CHECK(before.version_min() <= after.version_min() && before.version_max() <= after.version_max());
    if (frame.items_size() == 1 && (peer.only_refused() || (end.has_value() && !end->ok()))) {
      SLACKLINE_CHECK(before.version_max() == after.version_max() && before.version_min() == after.version_min());
      SLACKLINE_CHECK(after.staging_bytes() <= before.staging_bytes() && before.seeded() == after.seeded());
    }
    // A frame that is refused ends no stream but its own.
    if (frame.items_size() == 1 && end.has_value() && !end->ok()) SLACKLINE_CHECK(Ended() == ended);
    // The default: what the window allows of every worker, and one more; in softsync what is held, too.
    if (!bare_) SLACKLINE_CHECK(after.staging_bytes() <= StagingMax());
    if (end.has_value()) Close(number);
  }

  uint64_t StagingMax() const {
    const uint64_t pushes = uint64_t{job_.wire().window()} * job_.cluster().workers() + job_.cluster().workers();
    return kShards * kElements * sizeof(float) * (pushes + 1);
  }

  const job::Job job_;
  const bool bare_;
  ManualTime time_;
  Metrics metrics_;
  ps::ServiceMetrics service_metrics_{metrics_};
  std::map<uint32_t, std::unique_ptr<Peer>> peers_;
  std::string token_;
  ps::ShardTable table_;
};

}  // namespace

std::unique_ptr<google::protobuf::Message> NewInput() { return std::make_unique<ServerHistory>(); }

}  // namespace slackline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool quiet = (slackline::log::Initialise("fuzz", slackline::log::Least::kWarning), true);
  slackline::fuzz::ServerHistory history;
  if (!quiet || !slackline::fuzz::ParseText(data, size, history)) return 0;
  slackline::fuzz::Server server(history);
  for (const slackline::fuzz::ServerEvent& event : history.events()) server.Play(event);
  return 0;
}
