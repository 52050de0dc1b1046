// A worker's client against a server that says anything at any time: its calls end in time, with a status that says
// why.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/shm/descriptor_socket.h"
#include "histories.pb.h"
#include "parameter_server.grpc.pb.h"
#include "tests/fuzz/text_input.h"
#include "worker/client/exchange.h"
#include "worker/scheduler_link/scheduler_wire.h"

namespace slackline::fuzz {
namespace {

constexpr uint32_t kShardsMax = 3, kElementsMax = 3000, kSteps = 3;
constexpr absl::Duration kTimeout = absl::Milliseconds(30);

// Answers items well, but for what its script says. One worker at a time.
//
// Thread-safety: safe.
class ScriptedServer : private wire::ParameterServer::Service {
 public:
  ScriptedServer() : name_(shm::RandomAbstractName().value()) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
    builder.RegisterService(static_cast<wire::ParameterServer::Service*>(this));
    server_ = builder.BuildAndStart();
    SLACKLINE_CHECK(server_ != nullptr);
  }

  std::string address() const { return rpc::UnixAddress(name_); }
  void SetScript(const ClientHistory& history, const worker::ShardMap& map) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    script_ = history;
    map_ = map;
    next_ = items_ = 0;
  }

 private:
  using Stream = grpc::ServerReaderWriter<wire::ServerFrame, wire::WorkerFrame>;

  grpc::Status Exchange(grpc::ServerContext*, Stream* stream) override {
    wire::WorkerFrame frame;
    while (stream->Read(&frame)) {
      for (const wire::WorkerItem& item : frame.items()) {
        absl::MutexLock lock(&mutex_);
        const ServerSays* const says = Says();
        if (says == nullptr) {
          stream->Write(AnswerTo(item));
          continue;
        }
        for (const wire::ServerFrame& said : says->frames()) stream->Write(MakeRight(said, item, *says));
        if (says->end() != 0) return {static_cast<grpc::StatusCode>(says->end() % 17), "the script says so"};
      }
    }
    return grpc::Status::OK;
  }

  // What the script has for the item that has come; null for nothing.
  const ServerSays* Says() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (next_ >= script_.says_size() || items_++ < script_.says(next_).after() % 8) return nullptr;
    items_ = 0;
    return &script_.says(next_++);
  }

  wire::ServerFrame AnswerTo(const wire::WorkerItem& item) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    wire::ServerFrame frame;
    if (item.has_hello()) {
      wire::Welcome& welcome = *frame.add_items()->mutable_welcome();
      welcome.set_window(script_.window());
      welcome.set_chunk_bytes_max(4096);
      for (const wire::ShardClock& shard : item.hello().shards()) welcome.add_shards()->set_shard(shard.shard());
    } else if (item.has_push() && item.push().has_commit()) {
      wire::PushAnswer& answer = *frame.add_items()->mutable_answer();
      answer.set_shard(item.push().shard());
      answer.set_sequence(item.push().sequence());
      answer.set_outcome(wire::OUTCOME_APPLIED);
    }
    for (const wire::ShardVersion& shard : item.pull().shards()) {
      const uint64_t elements = ElementsOf(shard.shard());
      wire::ServerItem& served = *frame.add_items();
      wire::PullChunk& chunk = *served.mutable_pull();
      chunk.set_id(item.pull().id());
      chunk.set_shard(shard.shard());
      chunk.set_elements(elements);
      chunk.mutable_version()->set_lineage(1);
      chunk.mutable_version()->set_number(item.pull().clock());
      chunk.mutable_done()->set_id(item.pull().id());
      chunk.mutable_done()->set_shard(shard.shard());
      *chunk.mutable_done()->mutable_version() = chunk.version();
      served.set_payload_bytes(static_cast<uint32_t>(elements * sizeof(float)));
      frame.mutable_payload()->append(elements * sizeof(float), '\0');
    }
    return frame;
  }

  uint64_t ElementsOf(uint32_t shard) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return shard < map_.shards.size() ? map_.shards[shard].end - map_.shards[shard].begin : 0;
  }

  // What is 0 becomes what the item has asked for.
  wire::ServerFrame MakeRight(wire::ServerFrame frame, const wire::WorkerItem& to, const ServerSays& says) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (says.as_it_is()) return frame;
    std::string made;
    for (wire::ServerItem& item : *frame.mutable_items()) {
      item.set_payload_bytes(0);
      if (item.has_answer() && item.answer().sequence() == 0) item.mutable_answer()->set_sequence(to.push().sequence());
      if (item.has_welcome() && item.welcome().chunk_bytes_max() == 0) {
        *item.mutable_welcome() = AnswerTo(to).items_size() > 0 ? AnswerTo(to).items(0).welcome() : item.welcome();
      }
      if (item.has_pull_done() && item.pull_done().id() == 0) item.mutable_pull_done()->set_id(to.pull().id());
      if (!item.has_pull()) continue;
      wire::PullChunk& chunk = *item.mutable_pull();
      if (chunk.id() == 0) chunk.set_id(to.pull().id());
      if (chunk.has_done() && chunk.done().id() == 0) chunk.mutable_done()->set_id(chunk.id());
      if (chunk.elements() > kElementsMax || chunk.has_segment_offset()) continue;
      const uint64_t bytes = chunk.elements() * (chunk.encoding() == wire::ENCODING_BF16 ? 2 : 4);
      item.set_payload_bytes(static_cast<uint32_t>(bytes));
      made.append(bytes, '\1');
    }
    frame.set_payload(made);
    return frame;
  }

  const std::string name_;
  absl::Mutex mutex_;
  ClientHistory script_ ABSL_GUARDED_BY(mutex_);
  worker::ShardMap map_ ABSL_GUARDED_BY(mutex_);
  int next_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t items_ ABSL_GUARDED_BY(mutex_) = 0;  // since the last entry of the script
  std::unique_ptr<grpc::Server> server_;
};

worker::ShardMap MakeMap(const ClientHistory& history, const std::string& address) {
  worker::ShardMap map;
  const uint32_t shards = 1 + history.shards() % kShardsMax;
  map.elements = std::max(shards, history.elements() % kElementsMax);
  map.trained_elements = map.elements;
  map.generation = Generation(1);
  map.servers = {{.server = ServerId(1), .name = "ps-1", .address = address}};
  for (uint32_t shard = 0; shard < shards; ++shard) {
    map.shards.push_back({.shard = ShardId(shard),
                          .begin = map.elements * shard / shards,
                          .end = map.elements * (shard + 1) / shards,
                          .server = ServerId(1)});
  }
  return map;
}

// Any map: refused, or whole.
void TryMap(const wire::GetShardMapReply& reply) {
  const worker::ShardMap map = worker::FromWire(reply);
  const absl::Status status = worker::ValidateMap(map);
  if (!status.ok()) {
    SLACKLINE_CHECK(!status.message().empty());
    return;
  }
  uint64_t elements = 0;
  for (const worker::ShardInfo& shard : map.shards) elements += shard.end - shard.begin;
  SLACKLINE_CHECK(elements == map.elements);
}

void Play(const ClientHistory& history, ScriptedServer& server) {
  const worker::ShardMap map = MakeMap(history, server.address());
  server.SetScript(history, map);
  worker::ClientOptions options;
  options.same_host = worker::SameHost::kTcp;
  options.window = 1 + history.window() % 3;
  options.chunk_bytes = 4096;
  if (history.bf16()) options.pull_encoding = codec::Encoding::kBf16;
  options.timeouts.heartbeat = absl::Milliseconds(10);
  auto created = worker::Client::Create(options, map);
  SLACKLINE_CHECK(created.ok());
  worker::Client& client = **created;

  const std::vector<float> push(map.elements, 1);
  std::vector<std::vector<float>> parameters(options.window, std::vector<float>(map.elements));
  absl::Status status = client.Seed(push, kTimeout);
  if (status.ok()) status = client.Pull(absl::MakeSpan(parameters[0]), kTimeout);
  for (uint32_t step = 0; status.ok() && step < kSteps; ++step) {
    status = client.BeginStep(push, {.samples = 1}, absl::MakeSpan(parameters[step % options.window]));
    if (!status.ok() || client.steps_in_flight() < options.window) continue;
    status = client.FinishStep(kTimeout).status();
  }
  SLACKLINE_CHECK(status.ok() || !status.message().empty());
  client.Close("done", kTimeout);
}

}  // namespace

std::unique_ptr<google::protobuf::Message> NewInput() { return std::make_unique<ClientHistory>(); }

}  // namespace slackline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Never destroyed: gRPC's threads may outlive main().
  static slackline::fuzz::ScriptedServer& server = *new slackline::fuzz::ScriptedServer();
  slackline::fuzz::ClientHistory history;
  if (!slackline::fuzz::ParseText(data, size, history)) return 0;
  if (history.has_map()) {
    slackline::fuzz::TryMap(history.map());
  } else {
    slackline::fuzz::Play(history, server);
  }
  return 0;
}
