// A small fake parameter server on generated, synchronous gRPC: the server that a client in any other language would
// see. It applies pushes by plain subtraction, and misbehaves if a test tells it to.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "parameter_server.grpc.pb.h"

namespace slackline::worker {

// Thread-safety: safe; handlers run on gRPC's threads.
class FakeServer : private wire::ParameterServer::Service {
 public:
  using Stream = grpc::ServerReaderWriter<wire::ServerFrame, wire::WorkerFrame>;
  // A hook looks at an item before the server does. `end` ends the stream with that status: the item is handled, but
  // its answer is lost. `swallow` drops the item unhandled, with or without `end`.
  struct Verdict {
    std::optional<grpc::Status> end;
    bool swallow = false;
  };
  using Hook = std::function<Verdict(const wire::WorkerItem&, Stream&)>;

  // Holds these shards (number -> elements), with all weights 0. Listens on a free port of the loopback.
  explicit FakeServer(std::map<uint32_t, uint64_t> shards);
  ~FakeServer() override;

  const std::string& address() const { return address_; }
  void set_hook(Hook hook) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sets the largest payload, which Welcome allows and into which pulls are cut.
  void set_chunk_bytes(uint32_t bytes) { chunk_bytes_ = bytes; }
  void set_protocol(uint32_t major, uint32_t minor) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    protocol_major_ = major;
    protocol_minor_ = minor;
  }
  // Makes the server discard the next push of this shard that is complete.
  void DiscardNext(uint32_t shard, wire::DiscardReason reason = wire::DISCARD_LATE) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the values of the elements, for the next pull.
  std::vector<float> weights(uint32_t shard) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns every item so far, in order.
  std::vector<wire::WorkerItem> items() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<wire::WorkerItem> pushes(uint32_t shard) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the bytes of the pushes, one entry a chunk.
  std::vector<std::string> pushed_bytes(uint32_t shard) const ABSL_LOCKS_EXCLUDED(mutex_);
  wire::WorkerFrame last_frame() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until an item with this body has arrived; false after 20 s.
  bool AwaitItem(wire::WorkerItem::BodyCase body) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends all streams and stops listening.
  void Stop();

 private:
  struct Shard {
    std::vector<float> weights;
    std::vector<float> staged;
    std::optional<wire::DiscardReason> discards_next;
    uint64_t version = 0;
    uint64_t answered = 0;
    bool seeded = false;
    std::optional<wire::Pull> waiting;  // pull that waits for the push before its clock; of this shard only
  };

  // An answer before it is put into a frame.
  struct Said {
    wire::ServerItem item;
    std::string payload;
  };

  grpc::Status Exchange(grpc::ServerContext* context, Stream* stream) override;
  std::optional<grpc::Status> Hear(const wire::WorkerItem& item, const std::string& payload, Stream& stream);
  Verdict Look(const wire::WorkerItem& item, Stream& stream) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Said> Handle(const wire::WorkerItem& item, const std::string& payload) ABSL_LOCKS_EXCLUDED(mutex_);
  Said Greet(const wire::Hello& hello) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Said> Take(const wire::PushChunk& chunk, const std::string& payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Serve(const wire::Pull& pull, std::vector<Said>& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<uint32_t, Shard> shards_ ABSL_GUARDED_BY(mutex_);
  wire::WorkerFrame last_frame_ ABSL_GUARDED_BY(mutex_);
  std::vector<wire::WorkerItem> items_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, std::vector<std::string>> pushed_bytes_ ABSL_GUARDED_BY(mutex_);
  Hook hook_ ABSL_GUARDED_BY(mutex_);
  wire::Encoding pull_encoding_ ABSL_GUARDED_BY(mutex_) = wire::ENCODING_FP32;  // encoding of the last Hello
  uint32_t chunk_bytes_ = 1 << 20;
  uint32_t protocol_major_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: it says none
  uint32_t protocol_minor_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace slackline::worker
