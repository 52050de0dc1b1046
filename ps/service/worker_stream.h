// Handles one Exchange call on the completion queue: reads frames, hands them to the shards, writes their answers.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/frame.h"
#include "common/security/guard.h"
#include "parameter_server.grpc.pb.h"
#include "ps/base/service_metrics.h"
#include "ps/host/peer.h"
#include "ps/service/shard_table.h"

namespace slackline::ps {

using ExchangeService = wire::ParameterServer::WithRawMethod_Exchange<
    wire::ParameterServer::WithRawMethod_Replicate<wire::ParameterServer::Service>>;

class WorkerStream;

// Tag that a completion queue gives back.
class Event {
 public:
  virtual ~Event() = default;
  virtual void Happened(bool ok) = 0;
};

// Owner of the streams; told about their beginning and end.
class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  // Handles a client's call. An error turns the client away.
  virtual absl::Status Accepted(WorkerStream& stream) = 0;
  // Handles the end of a stream's last operation: the stream may be deleted.
  virtual void Finished(WorkerStream& stream) = 0;
  // Returns how long a frame that takes `cost` to parse must wait, so that it starves no other stream.
  virtual absl::Duration WaitForTurn(absl::Duration cost) = 0;
};

// Peer of a shard on one Exchange call.
//
// Thread-safety: none; the sequencer owns it.
// Ownership:     borrows owner, table and metrics; the owner deletes it in Finished().
// Copies:        wire -> shard: 0; shard -> wire: 0 as fp32, 1 as bf16, encoded when its turn comes.
// Limits:
//   - If a reader is slow, kQueuedItemsMax small items wait for it; then nothing more is read from it. At most
//     PullReply::queued_max pulls per shard wait, besides one that is going out.
//   - Items without effect are refused items, and pulls that replace pulls. A peer that sends them is not read from for
//     kPauseOfItem for each such item, kPauseOfByte for each byte of the frame, and kPauseOfHeaderByte for each byte
//     beside its payload; at most for kPauseMax. So it takes a small part of the sequencer's time, however fast it
//     sends.
//   - A frame with more beside its payload than the server's shards need waits for its turn before it is parsed. Such
//     frames of all streams together take a small part of the sequencer's time.
//   - After a frame's turn, only the parts of its payload that shards hold are kept.
class WorkerStream : public Peer {
 public:
  static constexpr size_t kQueuedItemsMax = 1024;
  static constexpr absl::Duration kPauseOfItem = absl::Milliseconds(1);
  static constexpr absl::Duration kPauseOfByte = absl::Nanoseconds(30);
  static constexpr absl::Duration kPauseOfHeaderByte = absl::Microseconds(1);
  static constexpr absl::Duration kPauseMax = absl::Seconds(1);
  // Longest time that parsing a byte of a header takes.
  static constexpr absl::Duration kParseOfByte = absl::Nanoseconds(15);

  WorkerStream(StreamOwner& owner, ShardTable& table, ServiceMetrics& metrics);

  // Waits for a client's call.
  void Request(ExchangeService& service, grpc::ServerCompletionQueue* queue);

  void Send(const wire::ServerItem& item) override;
  void Serve(PullReply reply) override;
  void Release(ShardId shard, PullId id) override;
  void Wasted() override { ++wasted_; }
  void End(const absl::Status& status) override;
  absl::Status MayTrain() const override;
  // Determines who has called. Returns an error if the caller is not let in.
  absl::Status Identify(const security::Guard& guard);
  // Runs every T. Ends a stream whose certificate is revoked. Cuts off a stream that has ended but cannot say so
  // because its client does not read.
  void Tick();

  // Time at which the call was accepted, and whether a valid frame has come since.
  absl::Time accepted_at = absl::InfinitePast();
  bool heard = false;

 private:
  class Tag : public Event {
   public:
    Tag(WorkerStream* stream, void (WorkerStream::*method)(bool)) : stream_(stream), method_(method) {}
    void Happened(bool ok) override { (stream_->*method_)(ok); }

   private:
    WorkerStream* const stream_;
    void (WorkerStream::*const method_)(bool);
  };
  // Pull that is going out.
  struct Sending {
    PullReply reply;
    size_t next = 0;    // index of the next chunk
    bool lent = false;  // a chunk of the pull was left in shared memory
    // Copy of all values of a small shard, so that no version is held for it.
    std::vector<float> copied;
    bool all_frozen = false;  // a new version with nothing to send
  };
  // Elements of a shard that lie one after the other in memory.
  struct Extent {
    uint64_t offset = 0;
    uint64_t elements = 0;
  };

  // Version that the peer reads in shared memory.
  struct Lent {
    ShardId shard;
    PullId id;
    std::shared_ptr<const PinnedView> weights;
  };

  void OnRequested(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnResumed(bool ok);
  // Handles the frame that was read.
  void Take();
  // Stops reading for a while.
  void Pause(absl::Duration pause);
  // Starts the next read and the next write, if they may start.
  void Pump();
  void Write(const grpc::ByteBuffer& frame);
  // Returns a frame of all queued items that fit: small ones, and the bytes of up to kGatherBytes or one chunk.
  grpc::ByteBuffer NextFrame();
  // Fills `item` with the next piece of the first pull, and returns its bytes.
  rpc::Attachment NextPullItem(wire::ServerItem& item);
  static rpc::Attachment CopiedItem(Sending& sending, wire::ServerItem& item);
  // Joins the next chunks of the slice into one chunk of the reply's encoding.
  static rpc::Attachment EncodedItem(Sending& sending, wire::ServerItem& item);
  rpc::Attachment PlainItem(Sending& sending, wire::ServerItem& item);
  // Returns true if these elements go out in the reply's encoding.
  static bool Encodes(const PullReply& reply, const Extent& extent);
  // Keeps a version that was served in shared memory until Release(), or until it is the oldest of too many.
  void Lend(const PullReply& reply);
  static wire::PullChunk& NameChunk(const PullReply& reply, const Extent& extent, wire::ServerItem& item);
  static void Complete(const PullReply& reply, bool unchanged, wire::PullDone& done);
  void FinishWhenQuiet();

  StreamOwner& owner_;
  ShardTable& table_;
  ServiceMetrics& metrics_;
  grpc::ServerContext context_;
  security::AdmittedCaller caller_;
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> call_;
  Tag requested_{this, &WorkerStream::OnRequested};
  Tag read_{this, &WorkerStream::OnRead};
  Tag written_{this, &WorkerStream::OnWritten};
  Tag finished_{this, &WorkerStream::OnFinished};
  Tag resumed_{this, &WorkerStream::OnResumed};
  grpc::CompletionQueue* queue_ = nullptr;
  grpc::Alarm pause_;

  grpc::ByteBuffer incoming_;
  std::optional<rpc::FoundFrame> found_;  // frame that was read and waits for its turn
  wire::WorkerFrame frame_;               // empty between frames; kept to spare allocations
  std::deque<wire::ServerItem> small_;
  std::deque<Sending> pulls_;
  std::deque<Lent> lent_;  // oldest first
  // Versions that the frame being written reads from, while the stream lives.
  std::vector<std::shared_ptr<const PinnedView>> writing_from_;
  size_t wasted_ = 0;  // items without effect in the current frame
  bool paused_ = false;
  bool reading_ = false;
  bool receiving_ = false;  // a frame of this stream is being handled
  bool writing_ = false;
  std::optional<absl::Status> end_;
  int ticks_since_end_ = 0;
  bool finishing_ = false;
  bool done_ = false;
};

}  // namespace slackline::ps
