// The protocol spoken plainly, one frame after the other: for peers that a real client would not be.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include "absl/types/span.h"
#include "parameter_server.pb.h"
#include "worker/client/client.h"

namespace slackline::bench {

// One stream to one server; what fails ends the program. Says Hello at once.
//
// Thread-safety: none.
class PlainStream {
 public:
  PlainStream(const worker::ShardMap& map, const worker::ServerInfo& server, wire::Role role, uint32_t worker);
  ~PlainStream();
  PlainStream(const PlainStream&) = delete;
  PlainStream& operator=(const PlainStream&) = delete;

  // A frame of this job, to be filled in.
  wire::WorkerFrame Frame() const;
  // Waits until gRPC has taken it. `payload` must live until the server has answered.
  void Send(const wire::WorkerFrame& frame, absl::Span<const std::byte> payload = {});
  // Waits for the next frame; its payload is dropped. Refusals end the program.
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
