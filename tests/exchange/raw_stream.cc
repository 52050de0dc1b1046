#include "tests/exchange/raw_stream.h"

#include <utility>

namespace slackline {

RawStream::RawStream(const Cluster& cluster, uint32_t number, const std::string& token)
    : RawStream(rpc::DataChannel(cluster.map().servers[0].address), number, token) {}

RawStream::RawStream(const std::shared_ptr<grpc::Channel>& channel, uint32_t number, const std::string& token)
    : stub_(wire::ParameterServer::NewStub(channel)),
      context_(rpc::ContextWithTimeout(absl::Seconds(30))),
      stream_(stub_->Exchange(context_.get())) {
  Write(HelloItem(number, token));
  first_ = Read();
}

wire::WorkerItem RawStream::HelloItem(uint32_t number, const std::string& token) {
  wire::WorkerItem item;
  wire::Hello& hello = *item.mutable_hello();
  hello.set_role(number == 0 ? wire::ROLE_READER : wire::ROLE_WORKER);
  hello.set_worker(number);
  hello.set_incarnation(100 + number);
  hello.set_window(64);
  hello.set_segment_token(token);
  return item;
}

wire::WorkerFrame RawStream::Frame() {
  wire::WorkerFrame frame;
  frame.set_job(Cluster::kJob.value());
  frame.set_generation(Cluster::kGeneration.value());
  return frame;
}

bool RawStream::Write(const wire::WorkerItem& item) {
  wire::WorkerFrame frame = Frame();
  *frame.add_items() = item;
  return Write(frame);
}

wire::ServerItem RawStream::Read() {
  while (next_ == received_.items_size()) {
    next_ = 0;
    if (!stream_->Read(&received_)) {
      received_.Clear();
      return wire::ServerItem();
    }
  }
  return received_.items(next_++);
}

wire::ServerItem RawStream::ReadAnswer() {
  wire::ServerItem item = Read();
  while (item.has_waiting()) item = Read();
  return item;
}

wire::WorkerItem PullItem(uint32_t shard, uint64_t id, uint64_t clock) {
  wire::WorkerItem item;
  item.mutable_pull()->set_id(id);
  item.mutable_pull()->set_clock(clock);
  item.mutable_pull()->add_shards()->set_shard(shard);
  return item;
}

wire::WorkerItem ReleaseItem(uint32_t shard, uint64_t id) {
  wire::WorkerItem item;
  item.mutable_release()->set_id(id);
  item.mutable_release()->add_shards(shard);
  return item;
}

wire::WorkerItem SharedPushItem(uint32_t shard, uint64_t sequence, uint64_t elements, uint64_t offset) {
  wire::WorkerItem item;
  wire::PushChunk& chunk = *item.mutable_push();
  chunk.set_shard(shard);
  chunk.set_sequence(sequence);
  chunk.set_elements(elements);
  chunk.set_encoding(wire::ENCODING_FP32);
  chunk.set_segment_offset(offset);
  chunk.mutable_commit()->mutable_base()->set_lineage(1);
  chunk.mutable_commit()->set_samples(1);
  return item;
}

absl::StatusOr<Granted> AskForSegments(const Cluster& cluster, uint32_t number, const shm::Segment* segment) {
  return AskForSegments(cluster.map().servers[0].memory_socket, number, segment);
}

absl::StatusOr<Granted> AskForSegments(const std::string& memory_socket, uint32_t number, const shm::Segment* segment) {
  wire::SegmentRequest request;
  request.set_job(Cluster::kJob.value());
  request.set_worker(number);
  request.set_incarnation(100 + number);
  std::vector<int> descriptors;
  if (segment != nullptr) {
    request.set_bytes(segment->bytes());
    descriptors.push_back(segment->descriptor()->get());
  }
  absl::StatusOr<shm::DescriptorMessage> reply =
      shm::Exchange(memory_socket, request.SerializeAsString(), descriptors, absl::Seconds(20));
  if (!reply.ok()) return reply.status();
  Granted granted;
  if (!granted.offer.ParseFromString(reply->message)) return absl::InternalError("no SegmentOffer");
  granted.descriptors = std::move(reply->descriptors);
  return granted;
}

}  // namespace slackline
