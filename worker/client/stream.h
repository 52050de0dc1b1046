// One server's Exchange stream: opens it, says Hello, keeps one read and one write going, and opens it again with
// back-off after it broke.
//
// An attempt lives from Connect() until gRPC has returned its last operation. Items queued on an attempt die with
// it: what has to be said again is for the owner to know.
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
#include "common/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/frame.h"
#include "worker/backoff.h"
#include "worker/client/frames.h"

namespace slackline::worker {

// What a completion queue brings back.
class Operation {
 public:
  virtual ~Operation() = default;
  // `ok` as grpc::CompletionQueue::Next() gives it.
  virtual void Done(bool ok) = 0;
};

// Thread-safety: none; the I/O thread.
// Ownership:     borrows the queue, the time and the owner. Destroyed only once ended().
class Stream {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // What a new stream says first.
    virtual wire::Hello MakeHello(Stream& stream) = 0;
    // The server has accepted the stream: Send() works from now on.
    virtual void Opened(Stream& stream, const wire::Welcome& welcome) = 0;
    virtual void Received(Stream& stream, const wire::ServerItem& item, const rpc::Payload& payload) = 0;
    // The stream has ended with `status`, open or not. It tries again by itself until Shutdown().
    virtual void Broken(Stream& stream, const absl::Status& status) = 0;
    // Tick() is wanted at `time`.
    virtual void WakeAt(absl::Time time) = 0;
  };

  // `index` is for the owner to know it by; `jitter_seed` spreads the attempts of many workers.
  struct Options {
    size_t index = 0;
    std::string address;
    // Go into every frame.
    JobId job;
    Generation generation;
    uint64_t jitter_seed = 0;
    std::shared_ptr<const rpc::Protection> protection = nullptr;
  };

  Stream(const Options& options, grpc::CompletionQueue& queue, const TimeSource& time, Owner& owner);
  ~Stream();

  size_t index() const { return options_.index; }
  bool open() const { return open_; }

  void Connect();
  // Queues items. Their payloads must stay as they are until the loans are back.
  // Requires: open().
  void Send(std::vector<Outgoing> items);
  // The same, before all that is in the queue.
  void SendFirst(std::vector<Outgoing> items);
  // Pushes in the queue go out in the order of their shards, whatever it was; the chunks of one stay in theirs.
  void QueueFirstShardsFirst();
  // Lets the last chunk of this sub-push that waits in the queue carry the trailer. False when none waits.
  bool CommitQueuedPush(ShardId shard, Sequence sequence, const wire::PushCommit& trailer);
  // Forgets the chunks for this shard that wait in the queue; those of one sub-push only.
  void DropQueuedPushes(ShardId shard);
  void DropQueuedPush(ShardId shard, Sequence sequence);
  // Tries again when the back-off is over, which is at retry_at().
  void Tick(absl::Time now);
  absl::Time retry_at() const { return retry_at_; }
  // The server is to be reached elsewhere from now on: breaks the stream off, if there is one, and tries there at once.
  void Redirect(const std::string& address, Generation generation);
  // The same for one that was not connected yet.
  void Aim(const std::string& address, Generation generation);
  // Breaks the stream off now and lets Broken() and the back-off follow.
  void Break(const absl::Status& why);
  // Ends it for good: after a last item in good order where there is one, at once otherwise.
  void Shutdown(std::optional<Outgoing> last_item);
  // Breaks the connection below it, for a server that reads nothing.
  void CutConnection();
  // All that was queued has been given to the system, or there is no stream to give it to.
  bool flushed() const;
  // No operation is outstanding and none will be begun; after Shutdown().
  bool ended() const { return shutdown_ && attempt_ == nullptr; }

 private:
  struct Attempt;
  using Handler = void (Stream::*)(bool);

  // Binds an outstanding operation to its handler. One of each kind at a time.
  struct Tag : Operation {
    void Done(bool ok) override { (stream->*handler)(ok); }
    Stream* stream = nullptr;
    Handler handler = nullptr;
  };

  void Started(bool ok);
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  void Finished(bool ok);

  void* Begin(Tag& tag);
  void Read();
  void WriteNext();
  // Sends the items that fit into one frame: small ones, and the bytes of up to kGatherBytes or one chunk.
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
