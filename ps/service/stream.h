// One Exchange call on the completion queue: reads frames, hands them to the shards, writes what they answer.
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
#include "ps/service/peer.h"
#include "ps/service/service_metrics.h"
#include "ps/service/shard_table.h"

namespace slackline::ps {

using ExchangeService = wire::ParameterServer::WithRawMethod_Exchange<
    wire::ParameterServer::WithRawMethod_Replicate<wire::ParameterServer::Service>>;

class Stream;

// What a completion queue gives back.
class Event {
 public:
  virtual ~Event() = default;
  virtual void Happened(bool ok) = 0;
};

// Keeps the streams; told about their beginning and end.
class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  // A client has called. An error turns it away.
  virtual absl::Status Accepted(Stream& stream) = 0;
  // Nothing is pending any more: the stream may be deleted.
  virtual void Finished(Stream& stream) = 0;
  // A frame that takes `cost` to parse has come. Returns how long it must wait, so that it starves no other stream.
  virtual absl::Duration WaitForTurn(absl::Duration cost) = 0;
};

// Thread-safety: none; the sequencer owns it.
// Ownership:     borrows owner, table and metrics; the owner deletes it in Finished().
// Copies:        wire -> shard: 0; shard -> wire: 0 as fp32, 1 as bf16, encoded when its turn comes.
// Limits:        kQueuedItemsMax small items wait for a slow reader, then it is not read from; pulls that wait are
//                at most two a shard. Whoever sends what leads to nothing (items that are refused, pulls that
//                replace pulls) is not read from for kPauseOfItem for each, kPauseOfByte for each byte of the frame,
//                and kPauseOfHeaderByte for each byte beside its payload: it takes a small part of the sequencer's
//                time, however fast it sends. A frame with more beside its payload than the server's shards need
//                waits for its turn before it is parsed: such frames of all streams together have a small part of the
//                sequencer's time. After its turn nothing of a frame is kept but what shards hold of its payload.
class Stream : public Peer {
 public:
  static constexpr size_t kQueuedItemsMax = 1024;
  static constexpr absl::Duration kPauseOfItem = absl::Milliseconds(1);
  static constexpr absl::Duration kPauseOfByte = absl::Nanoseconds(30);
  static constexpr absl::Duration kPauseOfHeaderByte = absl::Microseconds(1);
  static constexpr absl::Duration kPauseMax = absl::Seconds(1);
  // Parsing a byte of a header takes at most so long.
  static constexpr absl::Duration kParseOfByte = absl::Nanoseconds(15);

  Stream(StreamOwner& owner, ShardTable& table, ServiceMetrics& metrics);

  // Waits for a client's call.
  void Request(ExchangeService& service, grpc::ServerCompletionQueue* queue);

  void Send(const wire::ServerItem& item) override;
  void Serve(PullReply reply) override;
  void Release(ShardId shard, PullId id) override;
  void Wasted() override { ++wasted_; }
  void End(const absl::Status& status) override;
  absl::Status MayTrain() const override;
  // Who has called. An error says why it is not let in.
  absl::Status Identify(const security::Guard& guard);
  // T has passed. A stream that has ended and cannot say so, since its client does not read, is cut off.
  void Tick();

  // When the call was accepted, and whether a valid frame has come since.
  absl::Time accepted_at = absl::InfinitePast();
  bool heard = false;

 private:
  class Tag : public Event {
   public:
    Tag(Stream* stream, void (Stream::*method)(bool)) : stream_(stream), method_(method) {}
    void Happened(bool ok) override { (stream_->*method_)(ok); }

   private:
    Stream* const stream_;
    void (Stream::*const method_)(bool);
  };
  // A pull that is going out.
  struct Sending {
    PullReply reply;
    size_t next = 0;    // chunk
    bool lent = false;  // a chunk of it was left in shared memory
    // All of a small shard, copied, so that no version is held for it.
    std::vector<float> copied;
    bool all_frozen = false;  // a new version without anything to send
  };
  // Elements of a shard, one after the other in memory.
  struct Extent {
    uint64_t offset = 0;
    uint64_t elements = 0;
  };

  // A version that the peer reads in shared memory.
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
  // Works on the frame that was read.
  void Take();
  // Reads nothing for a while.
  void Pause(absl::Duration pause);
  // Starts the next read and write, where they may be started.
  void Pump();
  void Write(const grpc::ByteBuffer& frame);
  // All queued items that fit: small ones, and the bytes of up to kGatherBytes or one chunk.
  grpc::ByteBuffer NextFrame();
  // The next piece of the first pull.
  rpc::Attachment NextPullItem(wire::ServerItem& item);
  static rpc::Attachment CopiedItem(Sending& sending, wire::ServerItem& item);
  // The next chunks of the slice as one of the reply's encoding.
  static rpc::Attachment EncodedItem(Sending& sending, wire::ServerItem& item);
  rpc::Attachment PlainItem(Sending& sending, wire::ServerItem& item);
  // Whether these elements go out in the reply's encoding.
  static bool Encodes(const PullReply& reply, const Extent& extent);
  // Keeps what was served in shared memory until Release(), or until it is the oldest of too many.
  void Lend(const PullReply& reply);
  static wire::PullChunk& NameChunk(const PullReply& reply, const Extent& extent, wire::ServerItem& item);
  static void Complete(const PullReply& reply, bool unchanged, wire::PullDone& done);
  void FinishWhenQuiet();

  StreamOwner& owner_;
  ShardTable& table_;
  ServiceMetrics& metrics_;
  grpc::ServerContext context_;
  security::Caller caller_;
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> call_;
  Tag requested_{this, &Stream::OnRequested};
  Tag read_{this, &Stream::OnRead};
  Tag written_{this, &Stream::OnWritten};
  Tag finished_{this, &Stream::OnFinished};
  Tag resumed_{this, &Stream::OnResumed};
  grpc::CompletionQueue* queue_ = nullptr;
  grpc::Alarm pause_;

  grpc::ByteBuffer incoming_;
  std::optional<rpc::FoundFrame> found_;  // the frame that was read and waits for its turn
  wire::WorkerFrame frame_;               // empty between frames; kept to spare allocations
  std::deque<wire::ServerItem> small_;
  std::deque<Sending> pulls_;
  std::deque<Lent> lent_;  // oldest first
  // Of the frame that is being written, while the stream lives.
  std::vector<std::shared_ptr<const PinnedView>> writing_from_;
  size_t wasted_ = 0;  // items of the frame that is being worked on
  bool paused_ = false;
  bool reading_ = false;
  bool receiving_ = false;  // a frame of this stream is being worked on
  bool writing_ = false;
  std::optional<absl::Status> end_;
  int ticks_since_end_ = 0;
  bool finishing_ = false;
  bool done_ = false;
};

}  // namespace slackline::ps
