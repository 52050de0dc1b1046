// A server's side of its replication: what happens to its shards goes to a backup, and answers wait until it is there.
//
// Alone -> catching up -> in step -> lost -> alone. While it is alone, everybody is answered at once. A backup's stream
// brings it to catching up: shard by shard its arrays go out from copy-on-write references, then a base with the state
// of its engine, then what happens to it; answers of shards whose base was taken wait already. When the backup has
// handled all bases the two are in step, which the scheduler is told: it may now give the backup the server's place at
// any time. So from then on no answer is given that the backup does not have, stream or none, until the scheduler says
// that this backup will not take over (Released()).
//
// A server that was stopped and goes on cannot know at once that another has its place. It serves pulls only for 2 T
// from when it sent what the backup repeated last: a backup that takes over has let that time pass.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/rpc/frame.h"
#include "common/timeouts.h"
#include "parameter_server.pb.h"
#include "ps/service/service_metrics.h"
#include "ps/service/shard_journal.h"
#include "ps/store/snapshot.h"
#include "scheduler.pb.h"

namespace slackline::ps {

// The stream to a backup.
class ReplicaSink {
 public:
  virtual ~ReplicaSink() = default;
  // NextFrame() has something.
  virtual void Wake() = 0;
  virtual void End(const absl::Status& status) = 0;
};

// Thread-safety: none; the sequencer calls it.
// Ownership:     borrows metrics and time; the sink from Attach() until Detached() or until it was ended. What waits to
// be told is
//                run or destroyed with it.
// Copies:        pushes, means and arrays -> wire: 0, but for small pieces.
// Invariant:     from in step on, nothing is told that the backup has not handled, but for Released().
class ReplicaLog : public ShardJournal {
 public:
  // For tests of the tests: a planted bug must be caught by the simulation.
  struct Bugs {
    bool tell_at_once = false;  // answers do not wait for the backup
    bool no_fencing = false;    // without its backup it goes on, and serves for ever
  };

  struct Options {
    Timeouts timeouts;
    std::vector<ShardIdentity> shards;
    // Who follows is to have the shards, and nobody's backup: BackupHello.move. 0: a backup.
    uint64_t move = 0;
    // Attachments of the log before this one, in the same life of the server.
    uint64_t attachments_before = 0;
    // Nullopt: it has no weights yet.
    std::function<std::optional<ShardSnapshot>(ShardId shard)> take;
    // The members, with their clocks, of whom the snapshot knows only those who have come. May be null.
    std::function<std::vector<std::pair<Sender, Clock64>>(ShardId shard)> members;
    // Of its weights as they are now. Of one that has some.
    std::function<uint64_t(ShardId shard)> checksum;
    // Answers that a backup needs to know of each worker: as many as it may repeat.
    size_t answers_max = 64;
    // So long after the last one a shard's weights are compared.
    absl::Duration check_every = absl::Seconds(10);
    // An answer to this worker waits for so long already, for what `awaited` says.
    std::function<void(ShardId shard, const Sender& sender, absl::Duration waited, const std::string& awaited)> notify;
    // A backup is in step for the first time.
    std::function<void()> on_first_in_step;
    // MayServe() has become true again.
    std::function<void()> on_served_again;
    // Of a server that has taken over: the one before it may serve until then.
    absl::Time serve_from = absl::InfinitePast();
    Bugs bugs = {};
  };

  ReplicaLog(Options options, ServiceMetrics& metrics, const TimeSource& time);

  bool Follows(ShardId shard) const override;
  void Stepped(ShardId shard, RecordedStep step) override;
  void Answered(ShardId shard, const Sender& sender, const Answer& answer, Tell tell) override;
  void Joined(ShardId shard, const Sender& sender, Clock64 clock) override;
  void Left(ShardId shard, const Sender& sender) override;
  size_t Untold(ShardId shard, const Sender& sender) const override;
  bool MayServe() const override;

  // A backup's stream. A further one takes the place of one that was not in step yet.
  //   kUnavailable         an earlier backup was in step, and may take over
  //   kFailedPrecondition  a later backup follows, or has followed
  absl::Status Attach(ReplicaSink& sink, Incarnation backup);
  void Detached(const ReplicaSink& sink, const absl::Status& why);
  // The backup has handled so many items; `echo_us` as in BackupFrame. An error says why its stream is to end.
  absl::Status Handled(const ReplicaSink& sink, uint64_t handled, uint64_t echo_us);
  // What goes out next. False where there is nothing.
  bool NextFrame(const ReplicaSink& sink, wire::ReplicaFrame& frame, std::vector<rpc::Attachment>& pieces);

  // The scheduler says that the backup of this attachment, and earlier ones, will not take over.
  void Released(uint64_t attachment);
  // Nobody is to follow any more. Where a follower was in step, what waits to be told never is; else it is told now.
  // OK: because the shards live elsewhere now, as they should.
  void Close(const absl::Status& why);
  // Nobody can have taken over.
  bool alone() const { return state_ == State::kAlone || state_ == State::kCatchingUp; }
  uint64_t move() const { return options_.move; }
  // The server ends: that its backup goes is nothing to speak of.
  void Stopping() { stopping_ = true; }
  // Every T: asks the backup whether it is there; ends the stream of one that has been silent for 16 T.
  void Tick();
  // A shard has got its weights.
  void Seeded() { TakeNext(); }

  wire::BackupProgress progress() const;

 private:
  enum class State { kAlone, kCatchingUp, kInStep, kLost };
  // An answer that waits to be told; of none, `tell` is null.
  struct Waiting {
    ShardId shard;
    Sender sender;
    Sequence sequence;
    absl::Time since;
    absl::Time notice_at;
    Tell tell;
  };
  struct Entry {
    wire::ReplicaItem item;
    std::vector<rpc::Attachment> pieces;
    Waiting waiting;
    std::shared_ptr<StagedPush> staged;  // its place in the budget
  };
  struct Unhandled {
    uint64_t number = 0;  // items up to it
    Waiting waiting;
    std::shared_ptr<StagedPush> staged;
  };
  // The shard that is sent as a whole.
  struct Copying {
    size_t index = 0;  // of options_.shards
    ShardSnapshot snapshot;
    size_t array = 0;
    size_t chunk = 0;
    std::deque<Entry> later;  // what has happened to it since
  };

  void TakeNext();
  Entry& Record(ShardId shard);
  void RecordBytes(ShardId shard, const RecordedStep& step);
  void RecordPiece(ShardId shard, uint64_t offset, uint64_t elements, const codec::Codec& codec,
                   const ByteSegments& bytes, const std::shared_ptr<const void>& owner);
  void Emit(Entry entry, wire::ReplicaFrame& frame, std::vector<rpc::Attachment>& pieces);
  // One piece of the shard that is copied, or its base.
  void EmitCopied(wire::ReplicaFrame& frame, std::vector<rpc::Attachment>& pieces);
  // Whatever waits, in its order.
  std::vector<Waiting> TakeWaiting();
  void TellAll(std::vector<Waiting> waiting);
  void Notify(Waiting& waiting, absl::Time now, const std::string& awaited);
  // Lets the backup compare one shard, if it is time for that.
  void Check(absl::Time now);
  void Detach(const absl::Status& why);
  void ShowState();
  void ShowLag(absl::Time now);
  // "backup 7".
  std::string Follower() const;

  const Options options_;
  ServiceMetrics& metrics_;
  const TimeSource& time_;

  State state_ = State::kAlone;
  ReplicaSink* sink_ = nullptr;
  uint64_t attachment_ = 0;
  Incarnation backup_;
  std::string reason_;  // why it was lost
  bool was_in_step_ = false;
  bool stopping_ = false;

  std::set<ShardId> taken_;
  std::optional<Copying> copying_;
  bool copy_is_next_ = false;  // the last frame had no room for a piece of the copied shard
  std::deque<Entry> queue_;
  bool in_step_queued_ = false;
  uint64_t in_step_number_ = 0;  // of the item that says so; 0 before it has gone out
  uint64_t sent_ = 0;            // items
  std::deque<Unhandled> unhandled_;
  std::vector<Waiting> withheld_;  // when lost
  std::set<std::tuple<ShardId, Sender, Sequence>> untold_;
  absl::Time check_at_;
  size_t checked_ = 0;  // of options_.shards, the next one

  bool ping_due_ = false;
  absl::Time heard_;        // when the backup said anything
  absl::Time lease_until_;  // pulls may be served
};

}  // namespace slackline::ps
