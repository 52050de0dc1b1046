// A worker's exchange with all servers. The Session and the messages are the worker's own (worker/client/session.h,
// frames.h). Virtual streams take the place of worker/client/exchange.h and stream.h: a stream to each server,
// back-off, messages that are said again, and the weights of pulls.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "common/time/backoff.h"
#include "scheduler.pb.h"
#include "tests/world/scene.h"
#include "worker/base/step_report.h"
#include "worker/client/frames.h"
#include "worker/client/session.h"

namespace slackline::world {

// Thread-safety: none.
// Ownership:     borrows the scene and the host.
class Exchange {
 public:
  using Done = std::function<void(const absl::Status&)>;

  struct Who {
    Sender sender;
    Clock64 first_clock;
    bool reader = false;
  };

  Exchange(Scene& scene, const Host& host, const Who& who, const wire::GetShardMapReply& map);
  ~Exchange();

  // Only one request at a time is allowed. `done` may destroy this.
  void Seed(Done done);
  void Pull(Done done);
  // Begins the next push; Finish() waits for its answer.
  void Commit();
  // Finishes the oldest step in flight.
  void Finish(Done done);
  size_t steps_in_flight() const { return steps_.size(); }
  void Remap(const wire::GetShardMapReply& map);
  // Says goodbye and nothing more; forgets what it waits for.
  void Goodbye();
  bool waiting() const { return done_ != nullptr; }
  // Returns what servers have answered since the last report.
  worker::StepReport TakeReport();

 private:
  using Session = worker::Session;
  struct Shard;
  class Peer;
  enum class Kind { kSeed, kPull, kStep };
  struct Step {
    Sequence sequence;
    uint32_t slot = 0;
  };

  void Begin(Kind kind, Done done);
  void Opened(Peer& peer, const wire::Welcome& welcome);
  void Received(Peer& peer, const ServerPacket& packet);
  absl::Status Dispatch(Peer& peer, const ServerPacket& packet);
  absl::Status OnAnswer(const wire::PushAnswer& answer, LifeId server);
  absl::Status OnChunk(const wire::PullChunk& chunk, const std::vector<float>& payload);
  absl::Status OnPullDone(const wire::PullDone& done);
  absl::Status OnRefused(Peer& peer, const wire::Refused& refused);
  void Broken(Peer& peer, const absl::Status& status);
  void SayAgain(Peer& peer, const std::set<ShardId>& shards);
  void SendAll(const std::vector<Session::Send>& sends);
  void SendPush(Peer& peer, const Session::Send& send);
  void SendSeed(Peer& peer, ShardId shard);
  void Push(Peer& peer, const worker::SubPush& push);
  // Returns the index of the server's peer, or the number of peers if it has none.
  size_t PeerOf(uint32_t server) const;
  std::set<ShardId> AwaitedFrom(const Peer& peer) const;
  void CompleteIfDone();
  void Complete(const absl::Status& status);
  void Fail(const absl::Status& status);
  void Watch();
  void Shutdown(const absl::Status& status);

  Scene& scene_;
  const Host& host_;
  const Who who_;
  wire::GetShardMapReply map_;
  Session session_;
  std::vector<Shard> shards_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::deque<Step> steps_;
  Kind kind_ = Kind::kPull;
  Done done_;
  absl::Time begun_;
  absl::Status failure_;
  uint64_t lost_ = 0;                     // since the last report
  uint64_t applied_ = 0, discarded_ = 0;  // up to the last report
  // Tells events whether this still exists.
  std::shared_ptr<Exchange*> self_ = std::make_shared<Exchange*>(this);
};

}  // namespace slackline::world
