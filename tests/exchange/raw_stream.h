// A peer that says exactly what a test wants, right or wrong, on an Exchange stream and in requests for shared memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include "absl/status/statusor.h"
#include "common/rpc/channel.h"
#include "common/shm/descriptor_exchange.h"
#include "common/shm/segment.h"
#include "parameter_server.grpc.pb.h"
#include "tests/exchange/cluster.h"

namespace slackline {

// An Exchange stream. Every wait has the call's deadline.
//
// Thread-safety: none.
class RawStream {
 public:
  // Opens a stream as worker `number` of the cluster, or as a reader if `number` is 0, and says Hello.
  RawStream(const Cluster& cluster, uint32_t number, const std::string& token = "");
  // Opens the stream over `channel` instead of the cluster's own.
  RawStream(const std::shared_ptr<grpc::Channel>& channel, uint32_t number, const std::string& token = "");
  ~RawStream() { context_->TryCancel(); }

  // Returns the first item that came; it is empty if the stream has ended.
  const wire::ServerItem& first() const { return first_; }
  const wire::Welcome& welcome() const { return first_.welcome(); }

  static wire::WorkerFrame Frame();
  static wire::WorkerItem HelloItem(uint32_t number, const std::string& token);
  bool Write(const wire::WorkerFrame& frame) { return stream_->Write(frame); }
  bool Write(const wire::WorkerItem& item);
  // Returns the next item; it is empty if the stream has ended.
  wire::ServerItem Read();
  // Returns the next item that is no Waiting.
  wire::ServerItem ReadAnswer();
  grpc::Status Finish() { return stream_->Finish(); }
  void Cancel() { context_->TryCancel(); }

 private:
  const std::unique_ptr<wire::ParameterServer::Stub> stub_;
  const std::unique_ptr<grpc::ClientContext> context_;
  const std::unique_ptr<grpc::ClientReaderWriter<wire::WorkerFrame, wire::ServerFrame>> stream_;
  wire::ServerFrame received_;
  int next_ = 0;  // index of an item of received_
  wire::ServerItem first_;
};

wire::WorkerItem PullItem(uint32_t shard, uint64_t id, uint64_t clock);
wire::WorkerItem ReleaseItem(uint32_t shard, uint64_t id);
// Makes a whole push of values that lie in the push segment.
wire::WorkerItem SharedPushItem(uint32_t shard, uint64_t sequence, uint64_t elements, uint64_t offset);

// Reply to a worker at the descriptor socket.
struct Granted {
  wire::SegmentOffer offer;
  std::vector<shm::Descriptor> descriptors;
};
// Asks for shared memory at this descriptor socket, as worker `number`; `segment` may be null.
absl::StatusOr<Granted> AskForSegments(const std::string& memory_socket, uint32_t number, const shm::Segment* segment);
// Asks the cluster's first server.
absl::StatusOr<Granted> AskForSegments(const Cluster& cluster, uint32_t number, const shm::Segment* segment);

}  // namespace slackline
