#include "bench/exchange/faulty_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <thread>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/exchange/data_path.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/rpc/frame.h"
#include "parameter_server.grpc.pb.h"

namespace slackline::bench {
namespace {

constexpr absl::Duration kBeginTimeout = absl::Seconds(60);
// Beyond the numbers of members.
constexpr uint32_t kFirstPeer = 2000;
constexpr size_t kPayloadBytes = 1 << 20;
constexpr int kItems = 512;  // in a frame of small ones

wire::WorkerFrame FrameOf(const worker::ShardMap& map) {
  wire::WorkerFrame frame;
  frame.set_job(kBenchJob);
  frame.set_generation(map.generation.value());
  return frame;
}

wire::WorkerFrame HelloOf(const worker::ShardMap& map, uint32_t number) {
  wire::WorkerFrame frame = FrameOf(map);
  wire::Hello& hello = *frame.add_items()->mutable_hello();
  hello.set_role(wire::ROLE_READER);
  hello.set_worker(kFirstPeer + number);
  hello.set_window(1);
  return frame;
}

wire::WorkerFrame PullsOf(const worker::ShardMap& map, const worker::ServerInfo& server, int pulls) {
  wire::WorkerFrame frame = FrameOf(map);
  for (int id = 1; id <= pulls; ++id) {
    wire::Pull& pull = *frame.add_items()->mutable_pull();
    pull.set_id(static_cast<uint64_t>(id));
    for (const worker::ShardInfo& shard : map.shards) {
      if (shard.server == server.server) pull.add_shards()->set_shard(shard.shard.value());
    }
  }
  return frame;
}

wire::WorkerFrame SmallPushesOf(const worker::ShardMap& map) {
  wire::WorkerFrame frame = FrameOf(map);
  for (int i = 0; i < kItems; ++i) {
    wire::PushChunk& push = *frame.add_items()->mutable_push();
    push.set_sequence(1);
    push.set_elements(1);
  }
  return frame;
}

wire::WorkerFrame LargePushOf(const worker::ShardMap& map) {
  wire::WorkerFrame frame = FrameOf(map);
  frame.add_items()->mutable_push()->set_elements(kPayloadBytes / sizeof(float));
  frame.mutable_items(0)->set_payload_bytes(kPayloadBytes);
  frame.set_payload(std::string(kPayloadBytes, '\xff'));
  return frame;
}

// One stream after the other to one server: says Hello, then `frame` again and again, or once.
struct Talk {
  wire::WorkerFrame frame;
  bool again = false;
  bool reads = false;
};

// Frames are made once, so that a flood costs the server and not this machine.
class Talker {
 public:
  Talker(const worker::ShardMap& map, const worker::ServerInfo& server, const Talk& talk, uint32_t number)
      : channel_(rpc::DataChannel(server.address)),
        stub_(channel_),
        hello_(rpc::Build(HelloOf(map, number))),
        frame_(rpc::Build(talk.frame)),
        talk_(talk) {}

  // Until the server ends the stream.
  void Run() {
    grpc::ClientContext context;
    const auto call = stub_.PrepareCall(&context, "/slackline.wire.ParameterServer/Exchange", &queue_);
    call->StartCall(&other_);
    bool going = Await(*call);
    if (going && talk_.reads) Read(*call);
    going = going && Write(*call, hello_) && Write(*call, frame_);
    while (going && talk_.again) going = Write(*call, frame_);
    grpc::Status status;
    call->Finish(&status, &other_);
    Await(*call);
    void* tag = nullptr;
    while (reading_ && queue_.Next(&tag, &going)) reading_ = false;
  }

 private:
  void Read(grpc::GenericClientAsyncReaderWriter& call) {
    reading_ = true;
    call.Read(&received_, &read_);
  }
  bool Write(grpc::GenericClientAsyncReaderWriter& call, const grpc::ByteBuffer& frame) {
    call.Write(frame, &other_);
    return Await(call);
  }
  // For what is no read; those go on meanwhile.
  bool Await(grpc::GenericClientAsyncReaderWriter& call) {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok) && tag == &read_) {
      reading_ = false;
      if (ok) Read(call);
    }
    return ok;
  }

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  const grpc::ByteBuffer hello_, frame_;
  const Talk talk_;
  grpc::ByteBuffer received_;
  char other_ = 0, read_ = 0;  // tags
  bool reading_ = false;
};

void TalkForEver(const worker::ShardMap& map, const worker::ServerInfo& server, const Talk& talk, uint32_t number) {
  Talker talker(map, server, talk, number);
  while (true) talker.Run();
}

// Returns the socket; -1 when the server takes no more.
int ConnectTo(const worker::ServerInfo& server) {
  const size_t colon = server.address.rfind(':');
  uint32_t port = 0;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  SLACKLINE_CHECK(absl::SimpleAtoi(server.address.substr(colon + 1), &port));
  address.sin_port = htons(static_cast<uint16_t>(port));
  SLACKLINE_CHECK(inet_pton(AF_INET, server.address.substr(0, colon).c_str(), &address.sin_addr) == 1);
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return descriptor;
  close(descriptor);
  return -1;
}

// Every other one begins HTTP/2. They stay until the server has had enough.
void HoldOpen(const worker::ServerInfo& server, uint32_t number) {
  static constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  while (true) {
    const int descriptor = ConnectTo(server);
    if (descriptor < 0) continue;
    if (number % 2 == 0) static_cast<void>(send(descriptor, kPreface.data(), kPreface.size(), MSG_NOSIGNAL));
    char byte;
    while (recv(descriptor, &byte, 1, 0) > 0) continue;
    close(descriptor);
  }
}

// Streams that never say what they are.
void HoldStreamsOpen(const worker::ServerInfo& server) {
  const auto stub = wire::ParameterServer::NewStub(rpc::DataChannel(server.address));
  while (true) {
    grpc::ClientContext context;
    const auto stream = stub->Exchange(&context);
    wire::ServerFrame answer;
    while (stream->Read(&answer)) continue;
    stream->Finish();
  }
}

void DoWrong(Fault fault, const worker::ShardMap& map, const worker::ServerInfo& server, uint32_t number) {
  switch (fault) {
    case Fault::kStalled:
      return TalkForEver(map, server, {PullsOf(map, server, 1)}, number);
    case Fault::kHalfOpen:
      return number % 3 == 0 ? HoldStreamsOpen(server) : HoldOpen(server, number);
    case Fault::kFlood:
      return TalkForEver(map, server, {SmallPushesOf(map), /*again=*/true, /*reads=*/true}, number);
    case Fault::kLargeFlood:
      return TalkForEver(map, server, {LargePushOf(map), /*again=*/true, /*reads=*/true}, number);
    case Fault::kNeverReads:
      return TalkForEver(map, server, {PullsOf(map, server, kItems), /*again=*/true}, number);
  }
}

}  // namespace

std::string Name(Fault fault) {
  switch (fault) {
    case Fault::kStalled:
      return "stalled readers";
    case Fault::kHalfOpen:
      return "half-open connections";
    case Fault::kFlood:
      return "a flood of small pushes";
    case Fault::kLargeFlood:
      return "a flood of large pushes";
    case Fault::kNeverReads:
      return "pulls without reading";
  }
  return "";
}

std::unique_ptr<Child> StartFaultyPeers(Fault fault, const Cluster& cluster, uint32_t peers) {
  auto child = std::make_unique<Child>(Name(fault), [&, fault](const Channel& channel) {
    std::vector<std::thread> threads;
    for (const worker::ServerInfo& server : cluster.map().servers) {
      for (uint32_t number = 0; number < peers; ++number) {
        threads.emplace_back([&, number] { DoWrong(fault, cluster.map(), server, number); });
      }
    }
    channel.Send(true);
    for (std::thread& thread : threads) thread.join();
  });
  bool begun = false;
  if (!child->channel().Receive(&begun, kBeginTimeout)) {
    ExitOnError(absl::UnavailableError(absl::StrCat(child->name(), " did not begin")));
  }
  return child;
}

}  // namespace slackline::bench
