// The I/O thread's half of the client: the streams to all servers, the session over them, and the one request that
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
#include "common/clock.h"
#include "worker/backoff.h"
#include "worker/client/client.h"
#include "worker/client/frames.h"
#include "worker/client/loans.h"
#include "worker/client/pull_writer.h"
#include "worker/client/push_encoder.h"
#include "worker/client/session.h"
#include "worker/client/shared_memory.h"
#include "worker/client/silence_watch.h"
#include "worker/client/stream.h"

namespace slackline::worker {

// The push of a step, borrowed from the trainer until the step is finished.
struct LentPush {
  absl::Span<const float> values;
  std::shared_ptr<Loans> loans;
};

// What the trainer waits for. On its stack; the exchange lets go of it when it calls `done`.
struct Request {
  enum class Kind { kSeed, kPull, kFinishStep };

  Kind kind = Kind::kPull;
  absl::Span<const float> seed = {};  // kSeed: the initial weights
  std::shared_ptr<Loans> loans = {};  // kSeed
  absl::Span<float> parameters = {};  // kPull
  absl::Duration timeout = absl::ZeroDuration();
  StepReport report = {};  // filled in by kFinishStep
};

// Where the elements of a shard that are pushed end: those behind it are frozen.
inline uint64_t PushedEnd(const ShardInfo& shard, const ShardMap& map) {
  return map.frozen_from == 0 ? shard.end : std::clamp(map.frozen_from, shard.begin, shard.end);
}

// A request that fails, or a server's final word between two of them, ends the exchange: the streams are cut and
// every later request gets the same status.
//
// Thread-safety: none; the I/O thread.
class Exchange : private Stream::Owner {
 public:
  using Done = std::function<void(const absl::Status&)>;

  // Requires: a map that ValidateMap() takes.
  Exchange(const ClientOptions& options, const ShardMap& map, grpc::CompletionQueue& queue, const TimeSource& time);

  // Is told up to which element the weights after the oldest step in flight are there, from the first one on, whenever
  // that rises. Before Start().
  void set_on_pulled(std::function<void(uint64_t to)> on_pulled) { on_pulled_ = std::move(on_pulled); }
  // Opens the streams.
  void Start();
  // After a failure these three do nothing.
  void OpenStep(LentPush push);
  // Sends the shards of the open step that lie in [from, end), but for their trailers. Not to servers that read them in
  // shared memory: there it would gain nothing, and they would be out of the caches by the time they are applied.
  void Ready(uint64_t from);
  // Sends what is left of the open step, and asks for the weights after it.
  void CommitStep(const PushInfo& info, absl::Span<float> parameters);
  // Requires: no request is in progress; for kFinishStep, a step is in flight.
  void Begin(Request& request, Done done);
  // As Client::Remap().
  void Remap(const ShardMap& map);
  // Fails the request in progress, if any, and all later ones.
  void Fail(const absl::Status& status);
  // Says goodbye on the streams that are open and ends all of them.
  void Goodbye(const std::string& reason);
  // Does what is due by now.
  void Tick();
  absl::Time next_tick() const { return next_tick_; }
  bool ended() const;
  // Nothing waits to be sent on an open stream.
  bool flushed() const;
  Clock64 clock() const { return session_.clock(); }

 private:
  struct Peer {
    ServerInfo info;
    std::vector<ShardId> shards;  // ascending
    // It has no shards any more: its stream ends, and another peer is the server's if it gets some.
    bool retired = false;
    std::unique_ptr<Stream> stream;
    uint64_t chunk_bytes = 0;
    // With a server of this host, once it has agreed; null otherwise.
    std::unique_ptr<SharedMemory> memory;
    bool memory_agreed = false;
    // Shards whose frames were refused for now, and when to say them again.
    std::set<ShardId> refused;
    absl::Time retry_at = absl::InfiniteFuture();
    std::unique_ptr<Backoff> backoff;
  };
  struct Shard {
    ShardInfo info;
    size_t peer = 0;
    PullWriter writer;
    // The shard's part of the parameters that hold what was pulled last.
    absl::Span<const float> held;
    bool lent = false;  // chunks of the pull that is arriving are in shared memory
    bool seed_awaited = false;
    // Up to here the server has said what restores have lost; and what was discarded beyond: that cannot be lost.
    uint64_t lost_to = 0;
    std::deque<uint64_t> discarded;
  };
  // In what form a shard's part of a step went out first; it is repeated in the same.
  struct SentPush {
    // Before the step was committed, on the stream that is open: only the trailer is missing.
    bool early = false;
    bool plain = false;
    // Until the final answer. Shared with the items that wait for their turn on a stream.
    std::shared_ptr<PushEncoder::Push> encoded;
    absl::Time begun = absl::InfiniteFuture();
  };
  struct InFlight {
    Sequence sequence;
    LentPush push;
    PushInfo info = {};
    absl::Span<float> parameters = {};
    StepReport report = {};
    std::vector<SentPush> sent;  // by shard
    std::vector<bool> pulled;    // by shard
    size_t pulled_first = 0;     // so many shards from the first one on
    absl::Time committed = {};
  };

  // Stream::Owner
  wire::Hello MakeHello(Stream& stream) override;
  void Opened(Stream& stream, const wire::Welcome& welcome) override;
  void Received(Stream& stream, const wire::ServerItem& item, const rpc::Payload& payload) override;
  void Broken(Stream& stream, const absl::Status& status) override;
  void WakeAt(absl::Time time) override;

  absl::Status Dispatch(Peer& peer, const wire::ServerItem& item, const rpc::Payload& payload);
  absl::Status OnAnswer(const wire::PushAnswer& answer);
  absl::Status OnPullChunk(const wire::PullChunk& chunk, const rpc::Payload& payload);
  // Where the chunk's bytes are: in the frame, or in shared memory.
  absl::StatusOr<rpc::Payload> FindBytes(const Peer& peer, const wire::PullChunk& chunk, const codec::Codec& codec,
                                         const rpc::Payload& payload) const;
  absl::Status OnPullDone(const wire::PullDone& done);
  void OnWaiting(size_t peer, const wire::Waiting& waiting);
  absl::Status OnRefused(Peer& peer, const wire::Refused& refused);

  void AddPeer(const ServerInfo& info);
  // Its index; that behind the last where it is not known.
  size_t PeerOf(ServerId server) const;
  // Gives the shards to the peers that map_ says. Returns which of those have others than before.
  std::vector<bool> MoveShards();
  void Retire(size_t index);
  // Tries to share memory with a server of this host.
  void JoinMemory(Peer& peer);
  std::string AddressOf(const ServerInfo& server) const;
  uint64_t PushedEnd(const ShardInfo& shard) const { return worker::PushedEnd(shard, map_); }
  // What this pull was lent in shared memory has been copied: tells the server. False, and the stream is broken off,
  // when the server may have written to it before.
  bool GiveBack(Peer& peer, const wire::PullDone& done);
  // How many answered as applied this newly says to be lost.
  uint64_t NewlyLost(Shard& shard, const wire::ShardState& state) const;
  absl::Status CheckWelcome(const Peer& peer, const wire::Welcome& welcome) const;
  // The shard, if it lives on this server.
  absl::StatusOr<Shard*> FindShard(const Peer& peer, uint32_t shard);
  void SendAll(absl::Span<const Session::Send> sends);
  void SendSeeds(Peer& peer);
  void Send(Peer& peer, std::vector<Outgoing> items);
  void SayAgain(Peer& peer, absl::Span<const ShardId> shards);
  // `first` goes out before what is in the stream's queue, `items` behind it.
  void AppendPushOf(const Session::Send& send, const Peer& peer, std::vector<Outgoing>& first,
                    std::vector<Outgoing>& items);
  // The values, in the form in which they went out first; the trailer with them if `push` has one.
  void AppendValues(const SubPush& push, SentPush& sent, const Peer& peer, std::vector<Outgoing>& items);
  // What went out of these shards before their steps were committed must go out again.
  void ForgetEarly(absl::Span<const ShardId> shards);
  // A shard's part of a step was pushed, or pulled.
  void Record(const char* what, ShardId shard, absl::Time begin) const;
  // The final answer: what was kept to be said again is let go. `settled`: nothing of it is to be said later.
  void ForgetPush(ShardId shard, InFlight& step, bool settled);
  // Of the values of a shard's push, in the form in which they went out.
  uint64_t BytesOf(ShardId shard, const SentPush& sent) const;
  // The step in flight with this sequence; null when it is finished.
  InFlight* FindStep(uint64_t sequence);
  // Where the shard's weights of an awaited pull are to be written.
  absl::Span<float> Destination(const Shard& shard, Clock64 pull_clock);
  // The pull has been written, of which so many elements came, and the others are as they were: makes it so in every
  // memory that awaited it.
  void Deliver(Shard& shard, const Session::Clocks& clocks, uint64_t came);
  // Says how far the weights of the oldest step in flight have come.
  void NotePulled(ShardId shard, const Session::Clocks& clocks);
  // Of steps that are finished: when that was.
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
  // Before peers_, whose queues borrow it.
  PushEncoder encoder_;
  std::vector<Peer> peers_;
  std::vector<Shard> shards_;
  std::deque<InFlight> steps_;  // oldest first
  std::optional<InFlight> open_;
  Request* request_ = nullptr;
  Done done_;
  std::function<void(uint64_t to)> on_pulled_;
  absl::Time request_begin_;
  // Since the last step was finished: what servers reported, and what came.
  uint64_t lost_ = 0;
  uint64_t pulled_bytes_ = 0;
  size_t seeds_awaited_ = 0;
  absl::Status failure_;
  bool leaving_ = false;
  absl::Time cut_at_ = absl::InfiniteFuture();  // when streams that were cancelled should have ended
  absl::Time next_tick_ = absl::InfiniteFuture();
};

// Whether the shards are numbered from 0, lie side by side from 0 to map.elements, and are on known servers.
absl::Status ValidateMap(const ShardMap& map);

}  // namespace slackline::worker
