// Exchange: the client's I/O side. It owns the streams to all servers, the session over them, and the one request that
// the trainer has in progress.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/backoff.h"
#include "common/time/clock.h"
#include "worker/client/client.h"
#include "worker/client/frames.h"
#include "worker/client/loans.h"
#include "worker/client/pull_writer.h"
#include "worker/client/push_encoder.h"
#include "worker/client/server_stream.h"
#include "worker/client/session.h"
#include "worker/client/shared_memory.h"
#include "worker/client/silence_watch.h"

namespace slackline::worker {

// The push of one step, borrowed from the trainer until the step is finished.
struct LentPush {
  absl::Span<const float> values;
  std::shared_ptr<Loans> loans;
};

// A request that the trainer waits for. Lives on the trainer's stack; the exchange drops its pointer when it calls
// `done`.
struct Request {
  enum class Kind { kSeed, kPull, kFinishStep };

  Kind kind = Kind::kPull;
  absl::Span<const float> seed = {};  // kSeed: the initial weights
  std::shared_ptr<Loans> loans = {};  // kSeed
  absl::Span<float> parameters = {};  // kPull
  absl::Duration timeout = absl::ZeroDuration();
  StepReport report = {};  // filled in by kFinishStep
};

// Returns the end of the shard's pushed elements. Elements from there to the end of the shard are frozen.
inline uint64_t PushedEnd(const ShardInfo& shard, const ShardMap& map) {
  return map.frozen_from == 0 ? shard.end : std::clamp(map.frozen_from, shard.begin, shard.end);
}

// Exchange runs one client's traffic with all servers. A failed request, or a server's final answer between two
// requests, ends the exchange: the streams are cut, and every later request gets the same status.
//
// Thread-safety: none; the I/O thread.
class Exchange : private ServerStream::Owner {
 public:
  using Done = std::function<void(const absl::Status&)>;

  // Requires: a map that ValidateMap() accepts.
  Exchange(const ClientOptions& options, const ShardMap& map, grpc::CompletionQueue& queue, const TimeSource& time);

  // Sets a callback that learns how much of the weights after the oldest step in flight has arrived. `to` is the end of
  // the range that has arrived, counted from element 0. The callback runs whenever `to` rises. Call this before
  // Start().
  void set_on_pulled(std::function<void(uint64_t to)> on_pulled) { on_pulled_ = std::move(on_pulled); }
  // Opens the streams.
  void Start();
  // Opens a step that borrows `push`. After a failure, OpenStep(), Ready() and CommitStep() do nothing.
  void OpenStep(LentPush push);
  // Sends the shards of the open step that lie in [from, end), without their trailers. Skips servers that read shards
  // in shared memory: there it would gain nothing, and the values would have left the caches before they are applied.
  void Ready(uint64_t from);
  // Sends the rest of the open step, and requests the weights after it.
  void CommitStep(const PushInfo& info, absl::Span<float> parameters);
  // Begins `request`, and calls `done` when it completes.
  // Requires: no request is in progress; for kFinishStep, a step is in flight.
  void Begin(Request& request, Done done);
  // Implements Client::Remap().
  void Remap(const ShardMap& map);
  // Fails the request in progress, if any, and all later ones.
  void Fail(const absl::Status& status);
  // Sends a goodbye on the open streams and ends all streams.
  void Goodbye(const std::string& reason);
  // Performs the work that is due now.
  void Tick();
  absl::Time next_tick() const { return next_tick_; }
  bool ended() const;
  // True if no item waits to be sent on an open stream.
  bool flushed() const;
  Clock64 clock() const { return session_.clock(); }

 private:
  struct Peer {
    ServerInfo info;
    std::vector<ShardId> shards;  // ascending
    // True if the server has no shards any more. Its stream then ends. If the server gets shards again, it gets a new
    // peer.
    bool retired = false;
    std::unique_ptr<ServerStream> stream;
    uint64_t chunk_bytes = 0;
    // Minor number of the protocol that the server speaks.
    uint32_t minor = 0;
    // Memory shared with a server on this host, used once the server has agreed; null otherwise.
    std::unique_ptr<SharedMemory> memory;
    bool memory_agreed = false;
    // Shards whose frames the server refused for now, and the time at which to repeat them.
    std::set<ShardId> refused;
    absl::Time retry_at = absl::InfiniteFuture();
    std::unique_ptr<Backoff> backoff;
  };
  struct Shard {
    ShardInfo info;
    size_t peer = 0;
    PullWriter writer;
    // The shard's part of the parameters that hold the last pulled weights.
    absl::Span<const float> held;
    bool lent = false;  // true if chunks of the arriving pull are in shared memory
    bool seed_awaited = false;
    // End of the sequences whose loss in restores the server has already reported, and the discarded pushes beyond it.
    // Discarded pushes cannot be lost.
    uint64_t lost_to = 0;
    std::deque<uint64_t> discarded;
  };
  // The form in which a shard's part of a step was first sent. A repetition uses the same form.
  struct SentPush {
    // True if the values were sent on the open stream before the step was committed, so that only the trailer is
    // missing.
    bool early = false;
    bool plain = false;
    // Encoded values, kept until the final answer. Shared with the items that wait for their turn on a stream.
    std::shared_ptr<PushEncoder::Push> encoded;
    absl::Time begun = absl::InfiniteFuture();
  };
  struct InFlight {
    Sequence sequence;
    LentPush push;
    PushInfo info = {};
    absl::Span<float> parameters = {};
    StepReport report = {};
    std::vector<SentPush> sent;  // indexed by shard
    std::vector<bool> pulled;    // indexed by shard
    size_t pulled_first = 0;     // number of leading shards that have been pulled
    absl::Time committed = {};
  };

  // ServerStream::Owner
  wire::Hello MakeHello(ServerStream& stream) override;
  void Opened(ServerStream& stream, const wire::Welcome& welcome) override;
  void Received(ServerStream& stream, const wire::ServerItem& item, const rpc::Payload& payload) override;
  void Broken(ServerStream& stream, const absl::Status& status) override;
  void WakeAt(absl::Time time) override;

  absl::Status Dispatch(Peer& peer, const wire::ServerItem& item, const rpc::Payload& payload);
  absl::Status OnAnswer(const wire::PushAnswer& answer);
  absl::Status OnPullChunk(const wire::PullChunk& chunk, const rpc::Payload& payload);
  // Returns the chunk's bytes, from the frame or from shared memory.
  absl::StatusOr<rpc::Payload> FindBytes(const Peer& peer, const wire::PullChunk& chunk, const codec::Codec& codec,
                                         const rpc::Payload& payload) const;
  absl::Status OnPullDone(const wire::PullDone& done);
  void OnWaiting(size_t peer, const wire::Waiting& waiting);
  absl::Status OnRefused(Peer& peer, const wire::Refused& refused);

  void AddPeer(const ServerInfo& info);
  // Returns the index of the server's peer, or peers_.size() if the server is unknown.
  size_t PeerOf(ServerId server) const;
  // Assigns the shards to peers as map_ says. Returns, for each peer, whether its shards have changed.
  std::vector<bool> MoveShards();
  void Retire(size_t index);
  // Tries to share memory with a server on this host.
  void JoinMemory(Peer& peer);
  std::string AddressOf(const ServerInfo& server) const;
  uint64_t PushedEnd(const ShardInfo& shard) const { return worker::PushedEnd(shard, map_); }
  // Tells the server that the memory lent for this pull has been copied. If the server may have written to that memory
  // before, breaks the stream and returns false.
  bool GiveBack(Peer& peer, const wire::PullDone& done);
  // Returns the number of pushes that were answered as applied and that `state` newly reports as lost.
  uint64_t NewlyLost(Shard& shard, const wire::ShardState& state) const;
  absl::Status CheckWelcome(const Peer& peer, const wire::Welcome& welcome) const;
  // Checks that a server which speaks this minor number uses the learning rates of the push.
  //   kUnimplemented  it would ignore them
  static absl::Status CheckTakesRates(const PushInfo& info, uint32_t minor);
  // Returns the shard if it lives on this server.
  absl::StatusOr<Shard*> FindShard(const Peer& peer, uint32_t shard);
  void SendAll(absl::Span<const Session::Send> sends);
  void SendSeeds(Peer& peer);
  void Send(Peer& peer, std::vector<Outgoing> items);
  void SayAgain(Peer& peer, absl::Span<const ShardId> shards);
  // Appends the push that `send` asks for. Items in `first` go out before the stream's queue, items in `items` after
  // it.
  void AppendPushOf(const Session::Send& send, const Peer& peer, std::vector<Outgoing>& first,
                    std::vector<Outgoing>& items);
  // Appends the values in the form in which they were first sent. Includes the trailer if `push` has one.
  void AppendValues(const SubPush& push, SentPush& sent, const Peer& peer, std::vector<Outgoing>& items);
  // Marks early values of these shards as not sent, so that they are sent again.
  void ForgetEarly(absl::Span<const ShardId> shards);
  // Records in the trace that a shard's part of a step was pushed or pulled.
  void Record(const char* what, ShardId shard, absl::Time begin) const;
  // Drops the encoded values that were kept for repetition, after the final answer. `settled`: false if the values
  // return to the residual to go out later.
  void ForgetPush(ShardId shard, InFlight& step, bool settled);
  // Returns the size of a shard's pushed values in bytes, in the form in which they were sent.
  uint64_t BytesOf(ShardId shard, const SentPush& sent) const;
  // Returns the step in flight with this sequence, or null if it is finished.
  InFlight* FindStep(uint64_t sequence);
  // Returns the memory to which the shard's weights of an awaited pull are written.
  absl::Span<float> Destination(const Shard& shard, Clock64 pull_clock);
  // Completes a pull in every memory that awaited it. `came` is the number of elements that arrived; the others have
  // not changed and are copied from where they were last written.
  void Deliver(Shard& shard, const Session::Clocks& clocks, uint64_t came);
  // Reports through on_pulled_ how far the weights of the oldest step in flight have arrived.
  void NotePulled(ShardId shard, const Session::Clocks& clocks);
  // Records the time at which steps were finished.
  void NoteFinished();
  bool RequestDone() const;
  std::vector<std::vector<ShardId>> Awaited() const;
  void CompleteIfDone();
  void Complete(const absl::Status& status);

  const ClientOptions options_;
  ShardMap map_;
  grpc::CompletionQueue& queue_;
  const TimeSource& time_;
  Session session_;
  SilenceWatch watch_;
  // Declared before peers_, whose queues borrow it.
  PushEncoder encoder_;
  std::vector<Peer> peers_;
  std::vector<Shard> shards_;
  std::deque<InFlight> steps_;  // oldest first
  std::optional<InFlight> open_;
  Request* request_ = nullptr;
  Done done_;
  std::function<void(uint64_t to)> on_pulled_;
  absl::Time request_begin_;
  // Lost sub-pushes that servers reported, and bytes that arrived, since the last step was finished.
  uint64_t lost_ = 0;
  uint64_t pulled_bytes_ = 0;
  size_t seeds_awaited_ = 0;
  absl::Status failure_;
  bool leaving_ = false;
  absl::Time cut_at_ = absl::InfiniteFuture();  // deadline for cancelled streams to end
  absl::Time next_tick_ = absl::InfiniteFuture();
};

// Returns an error unless the shards are numbered from 0, lie side by side from 0 to map.elements, and are on known
// servers.
absl::Status ValidateMap(const ShardMap& map);

}  // namespace slackline::worker
