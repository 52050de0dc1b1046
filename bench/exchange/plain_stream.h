// The protocol without a client library, one frame at a time, for peers that behave unlike a real client.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include "absl/types/span.h"
#include "parameter_server.pb.h"
#include "worker/client/client.h"

namespace slackline::bench {

// A stream to one server. The constructor sends Hello. An error ends the program.
//
// Thread-safety: none.
class PlainStream {
 public:
  PlainStream(const worker::ShardMap& map, const worker::ServerInfo& server, wire::Role role, uint32_t worker);
  ~PlainStream();
  PlainStream(const PlainStream&) = delete;
  PlainStream& operator=(const PlainStream&) = delete;

  // Returns a frame of this job for the caller to fill in.
  wire::WorkerFrame Frame() const;
  // Sends a frame and waits until gRPC has taken it. `payload` must live until the server has answered.
  void Send(const wire::WorkerFrame& frame, absl::Span<const std::byte> payload = {});
  // Waits for the next frame and drops its payload. A refusal ends the program.
  wire::ServerFrame Receive();
  const wire::Welcome& welcome() const { return welcome_; }

 private:
  void Await(const char* what);

  const std::string server_;
  const uint64_t generation_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  wire::Welcome welcome_;
};

}  // namespace slackline::bench
