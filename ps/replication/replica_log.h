// A server's side of replication: records what happens to its shards, sends it to a backup, and holds each answer back
// until the backup has it.
//
// States: alone -> catching up -> in step -> lost -> alone.
//   alone        All answers are given at once.
//   catching up  A backup has opened a stream. For each shard the server sends the arrays from copy-on-write
//                references, then a base with the state of the engine, then all that happened since. Answers of a shard
//                wait for the backup from the moment its base is taken.
//   in step      The backup has handled all bases, and the scheduler is told so. The scheduler may now give the backup
//                the server's place at any time. So no answer is given that the backup does not have, with or without a
//                stream, until the scheduler says that this backup will not take over (Released()).
//   lost         The stream of a backup in step has ended. Answers wait as in step.
//
// Lease: a server that was paused and continues cannot know at once that another has its place. It serves pulls only
// for 2 T after it sent the time that the backup repeated last. A backup that takes over has waited that long.
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
#include "common/rpc/frame.h"
#include "common/time/clock.h"
#include "common/time/timeouts.h"
#include "parameter_server.pb.h"
#include "ps/base/service_metrics.h"
#include "ps/host/shard_journal.h"
#include "ps/store/snapshot.h"
#include "scheduler.pb.h"

namespace slackline::ps {

// Stream to a backup.
class ReplicaSink {
 public:
  virtual ~ReplicaSink() = default;
  // Signals that NextFrame() has something to send.
  virtual void Wake() = 0;
  virtual void End(const absl::Status& status) = 0;
};

// Journal of a server's shards, with the backup that follows it.
//
// Thread-safety: none; the sequencer calls it.
// Ownership:     borrows metrics and time; borrows the sink from Attach() until Detached() or until the sink was ended.
//                Owns the answers that wait: they are run, or destroyed with the log.
// Copies:        pushes, means and arrays -> wire: 0, except for small pieces.
// Invariant:     from in step on, no answer is given that the backup has not handled, except after Released().
class ReplicaLog : public ShardJournal {
 public:
  struct Options {
    Timeouts timeouts;
    std::vector<ShardIdentity> shards;
    // Number of the move if the follower is to take the shards over (BackupHello.move); 0 if it is a backup.
    uint64_t move = 0;
    // Number of attachments of earlier logs, in the same life of the server.
    uint64_t attachments_before = 0;
    // Returns a snapshot of the shard; nullopt if the shard has no weights yet.
    std::function<std::optional<ShardSnapshot>(ShardId shard)> take;
    // Returns the members with their clocks; the snapshot knows only members that have come. May be null.
    std::function<std::vector<std::pair<Sender, Clock64>>(ShardId shard)> members;
    // Returns the checksum of the shard's weights as they are now. Requires: the shard has weights.
    std::function<uint64_t(ShardId shard)> checksum;
    // Number of answers of each worker that a backup needs: as many as the worker may repeat.
    size_t answers_max = 64;
    // Time between two comparisons of weights with the backup; each compares one shard.
    absl::Duration check_every = absl::Seconds(10);
    // Callback when an answer to this worker has waited for so long, for what `awaited` says.
    std::function<void(ShardId shard, const Sender& sender, absl::Duration waited, const std::string& awaited)> notify;
    // Callback when a backup is in step for the first time.
    std::function<void()> on_first_in_step;
    // Callback when MayServe() becomes true again.
    std::function<void()> on_served_again;
    // Time until which the server before this one may serve; set for a server that has taken over.
    absl::Time serve_from = absl::InfinitePast();
  };

  ReplicaLog(Options options, ServiceMetrics& metrics, const TimeSource& time);

  bool Follows(ShardId shard) const override;
  void Stepped(ShardId shard, JournalStep step) override;
  void Answered(ShardId shard, const Sender& sender, const Answer& answer, Tell tell) override;
  void Joined(ShardId shard, const Sender& sender, Clock64 clock) override;
  void Left(ShardId shard, const Sender& sender) override;
  size_t Untold(ShardId shard, const Sender& sender) const override;
  bool MayServe() const override;

  // Takes a backup's stream. It replaces an earlier stream that was not in step yet.
  //   kUnavailable         an earlier backup was in step, and may take over
  //   kFailedPrecondition  a later backup follows, or has followed
  absl::Status Attach(ReplicaSink& sink, Incarnation backup);
  void Detached(const ReplicaSink& sink, const absl::Status& why);
  // Records that the backup has handled `handled` items; `echo_us` as in BackupFrame. Returns an error if its stream is
  // to end.
  absl::Status Handled(const ReplicaSink& sink, uint64_t handled, uint64_t echo_us);
  // Fills the next frame to send. Returns false if there is none.
  bool NextFrame(const ReplicaSink& sink, wire::ReplicaFrame& frame, std::vector<rpc::Attachment>& pieces);

  // Records the scheduler's promise that the backup of this attachment, and all earlier ones, will not take over.
  void Released(uint64_t attachment);
  // Ends the follower's stream, for good. If the follower was in step, waiting answers are never given; else they are
  // given now. `why` is OK if the shards live elsewhere now, as planned.
  void Close(const absl::Status& why);
  // Returns true if no backup can have taken over.
  bool alone() const { return state_ == State::kAlone || state_ == State::kCatchingUp; }
  uint64_t move() const { return options_.move; }
  // Announces the server's end, so that the loss of the backup is not logged as a warning.
  void Stopping() { stopping_ = true; }
  // Runs every T: asks the backup for a sign of life, and ends the stream of a backup that has been silent for 16 T.
  void Tick();
  // Handles the arrival of a shard's initial weights.
  void Seeded() { TakeNext(); }

  wire::BackupProgress progress() const;

 private:
  enum class State { kAlone, kCatchingUp, kInStep, kLost };
  // Answer that waits to be given; `tell` is null if there is none.
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
    std::shared_ptr<StagedPush> staged;  // keeps its place in the staging budget
  };
  struct Unhandled {
    uint64_t number = 0;  // number of the item among all sent
    Waiting waiting;
    std::shared_ptr<StagedPush> staged;
  };
  // Shard that is being sent as a whole.
  struct Copying {
    size_t index = 0;  // index in options_.shards
    ShardSnapshot snapshot;
    size_t array = 0;
    size_t chunk = 0;
    std::deque<Entry> later;  // events of the shard since the snapshot
  };

  void TakeNext();
  Entry& Record(ShardId shard);
  void RecordBytes(ShardId shard, const JournalStep& step);
  void RecordPiece(ShardId shard, uint64_t offset, uint64_t elements, const codec::Codec& codec,
                   const ByteSegments& bytes, const std::shared_ptr<const void>& owner);
  void Emit(Entry entry, wire::ReplicaFrame& frame, std::vector<rpc::Attachment>& pieces);
  // Adds one piece of the shard that is being copied, or its base, to the frame.
  void EmitCopied(wire::ReplicaFrame& frame, std::vector<rpc::Attachment>& pieces);
  // Takes out all waiting answers, in their order.
  std::vector<Waiting> TakeWaiting();
  void TellAll(std::vector<Waiting> waiting);
  void Notify(Waiting& waiting, absl::Time now, const std::string& awaited);
  // Makes the backup compare one shard, if it is time for that.
  void Check(absl::Time now);
  void Detach(const absl::Status& why);
  void ShowState();
  void ShowLag(absl::Time now);
  // Returns, for example, "backup 7".
  std::string Follower() const;

  const Options options_;
  ServiceMetrics& metrics_;
  const TimeSource& time_;

  State state_ = State::kAlone;
  ReplicaSink* sink_ = nullptr;
  uint64_t attachment_ = 0;
  Incarnation backup_;
  std::string reason_;  // error that ended the last stream
  bool was_in_step_ = false;
  bool stopping_ = false;

  std::set<ShardId> taken_;
  std::optional<Copying> copying_;
  bool copy_is_next_ = false;  // the last frame had no room for a piece of the copied shard
  std::deque<Entry> queue_;
  bool in_step_queued_ = false;
  uint64_t in_step_number_ = 0;  // number of the item that says "in step"; 0 before it was sent
  uint64_t sent_ = 0;            // number of items sent
  std::deque<Unhandled> unhandled_;
  std::vector<Waiting> withheld_;  // answers held back since the backup was lost
  std::set<std::tuple<ShardId, Sender, Sequence>> untold_;
  absl::Time check_at_;
  size_t checked_ = 0;  // number of checks so far; picks the next of options_.shards

  bool ping_due_ = false;
  absl::Time heard_;        // time of the backup's last message
  absl::Time lease_until_;  // pulls may be served until then
};

}  // namespace slackline::ps
