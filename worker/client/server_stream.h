// ServerStream: one server's Exchange stream. It opens the stream, says Hello, keeps one read and one write in
// progress, and reopens the stream with back-off after it breaks.
//
// An attempt lives from Connect() until gRPC has returned its last operation. Items queued on an attempt are lost with
// it; the owner knows what to repeat.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/frame.h"
#include "common/time/backoff.h"
#include "common/time/clock.h"
#include "worker/client/frames.h"

namespace slackline::worker {

// An operation that a completion queue returns.
class QueuedOperation {
 public:
  virtual ~QueuedOperation() = default;
  // Handles completion. `ok` is the flag of grpc::CompletionQueue::Next().
  virtual void Done(bool ok) = 0;
};

// ServerStream runs the connection to one server.
//
// Thread-safety: none; the I/O thread.
// Ownership:     borrows the queue, the time and the owner. Destroyed only once ended().
class ServerStream {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // Returns the first message of a new stream.
    virtual wire::Hello MakeHello(ServerStream& stream) = 0;
    // Reports that the server has accepted the stream. Send() works from now on.
    virtual void Opened(ServerStream& stream, const wire::Welcome& welcome) = 0;
    virtual void Received(ServerStream& stream, const wire::ServerItem& item, const rpc::Payload& payload) = 0;
    // Reports that the stream has ended with `status`, whether or not it was open. The stream reconnects by itself
    // until Shutdown().
    virtual void Broken(ServerStream& stream, const absl::Status& status) = 0;
    // Requests a call of Tick() at `time`.
    virtual void WakeAt(absl::Time time) = 0;
  };

  // `index` identifies the stream to its owner; `jitter_seed` spreads the attempts of many workers.
  struct Options {
    size_t index = 0;
    std::string address;
    // Job and generation that every frame carries.
    JobId job;
    Generation generation;
    uint64_t jitter_seed = 0;
    std::shared_ptr<const rpc::Protection> protection = nullptr;
  };

  ServerStream(const Options& options, grpc::CompletionQueue& queue, const TimeSource& time, Owner& owner);
  ~ServerStream();

  size_t index() const { return options_.index; }
  bool open() const { return open_; }

  void Connect();
  // Queues items. Their payloads must not change until the loans are returned.
  // Requires: open().
  void Send(std::vector<Outgoing> items);
  // Queues items before all that are already in the queue. Payloads and requirements are as for Send().
  void SendFirst(std::vector<Outgoing> items);
  // Sorts the queued pushes by step and then by shard. The chunks of one sub-push keep their order.
  void QueueFirstShardsFirst();
  // Attaches the trailer to the last queued chunk of this sub-push. Returns false if no chunk of it is queued.
  bool CommitQueuedPush(ShardId shard, Sequence sequence, const wire::PushCommit& trailer);
  // Removes the queued chunks of all pushes for this shard, or of one sub-push only.
  void DropQueuedPushes(ShardId shard);
  void DropQueuedPush(ShardId shard, Sequence sequence);
  // Reconnects if the back-off is over, that is, from retry_at() on.
  void Tick(absl::Time now);
  absl::Time retry_at() const { return retry_at_; }
  // Changes the server's address: breaks the current stream, if any, and connects to the new address at once.
  void Redirect(const std::string& address, Generation generation);
  // Changes the address of a stream that has not connected yet.
  void Aim(const std::string& address, Generation generation);
  // Breaks the stream now. Broken() and the back-off follow.
  void Break(const absl::Status& why);
  // Ends the stream for good: after sending `last_item` if there is one, at once otherwise.
  void Shutdown(std::optional<Outgoing> last_item);
  // Breaks the connection under the stream, for a server that does not read.
  void CutConnection();
  // True if all queued items were handed to the system, or if no stream is open.
  bool flushed() const;
  // True if no operation is outstanding and none will begin. Only after Shutdown().
  bool ended() const { return shutdown_ && attempt_ == nullptr; }

 private:
  struct Attempt;
  using Handler = void (ServerStream::*)(bool);

  // Binds an outstanding operation to its handler. At most one operation of each kind is outstanding.
  struct Tag : QueuedOperation {
    void Done(bool ok) override { (stream->*handler)(ok); }
    ServerStream* stream = nullptr;
    Handler handler = nullptr;
  };

  void Started(bool ok);
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  void Finished(bool ok);

  void* Begin(Tag& tag);
  void Read();
  void WriteNext();
  // Writes the items that fit into one frame: small items together, up to kGatherBytes, or one large chunk.
  void WriteQueued();
  void Dispatch(const grpc::ByteBuffer& bytes);
  void Dispatch(const wire::ServerItem& item, const rpc::Payload& payload);
  void BeginFinish();
  void EndAttemptIfQuiet();

  Options options_;
  grpc::CompletionQueue& queue_;
  const TimeSource& time_;
  Owner& owner_;
  Backoff backoff_;
  Tag start_tag_, read_tag_, write_tag_, finish_tag_;
  std::unique_ptr<Attempt> attempt_;
  std::deque<Outgoing> outgoing_;
  bool open_ = false;
  bool shutdown_ = false;
  absl::Time retry_at_ = absl::InfiniteFuture();
};

}  // namespace slackline::worker
