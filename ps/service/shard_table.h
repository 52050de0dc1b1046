// All shards of one server process, and their callers: the whole service except gRPC.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/rpc/frame.h"
#include "common/shm/segment.h"
#include "common/time/clock.h"
#include "common/time/timeouts.h"
#include "job.pb.h"
#include "parameter_server.pb.h"
#include "ps/base/service_metrics.h"
#include "ps/host/peer.h"
#include "ps/host/shard_host.h"
#include "ps/host/staging.h"
#include "ps/replication/backup_feed.h"
#include "ps/replication/replica_log.h"
#include "ps/service/segment_grants.h"
#include "ps/service/shard_builder.h"
#include "ps/service/shard_cuts.h"
#include "ps/service/snapshot_keeper.h"
#include "ps/store/checkpoint_writer.h"
#include "scheduler.pb.h"

namespace slackline::ps {

// Identity of this process, as the scheduler assigned it.
struct ServerIdentity {
  JobId job;
  ServerId server;
  Incarnation incarnation = {};
};

// Holds the shards of a server process, and passes frames and the scheduler's calls to them.
//
// Thread-safety: none; the sequencer calls it.
// Ownership:     borrows metrics, time, and each peer from its Hello until Closed() or until it was ended.
// Invariant:     no input stops the process; a refused request changes nothing.
class ShardTable {
 public:
  struct Progress {
    // Report for the scheduler, without the memory of the process.
    wire::ServerProgress report = {};
    // True if this server is the backup of another.
    bool follows = false;
  };

  // Callbacks to the owner of the table.
  struct Hooks {
    // Callbacks of each shard; see ShardConfig.
    std::function<void()> on_unpinned;
    std::function<void()> on_seeded;
    // Called when shards are installed and these ones keep snapshots. The owner then calls TakeSnapshot() for each now
    // and then. Null if no snapshots are kept, whatever the request says.
    std::function<void(std::vector<StoredShard> stores)> on_stores;
    // Called when these shards live elsewhere now, so that their stores must be closed. Null if shards never move.
    std::function<void(const std::vector<ShardId>& shards)> on_stores_gone = nullptr;
    // Called when all shards have their cuts for a checkpoint. The owner then calls cuts().Done() with the outcome.
    // Null if this server makes no checkpoints.
    std::function<void(CheckpointCut cut)> on_cut = nullptr;
    // Called with the server whose backup this process is now, or from which it takes shards. The owner then calls
    // BeginFollowing(), and Follow() with what the stream brings. Called with null when that ends. The hook is null if
    // this server can be no backup and take no shards.
    std::function<void(const wire::ReplicationSource* source)> on_backup = nullptr;
    // Opens a database in place of Database::Open(); see StoreOptions.
    std::function<absl::StatusOr<std::unique_ptr<Database>>(const std::filesystem::path& folder)> open_database =
        nullptr;
  };

  ShardTable(const job::Job& job, const Timeouts& timeouts, ServiceMetrics& metrics, const TimeSource& time,
             Hooks hooks);
  ~ShardTable();

  void SetIdentity(const ServerIdentity& identity) { identity_ = identity; }
  //   kFailedPrecondition  this server works for another job
  absl::Status CheckJob(JobId job) const;

  // Installs the shards. With a restore it reads their snapshots, and takes as long as that.
  //   kUnavailable         this process does not know its own number yet, or another process has the snapshots open
  //   kFailedPrecondition  the request is for another job or server, or other shards are installed
  //   kInvalidArgument     an impossible shard, or staging that cannot hold what the mode needs
  //   kFailedPrecondition  more weights than the machine has memory for
  //   kDataLoss            a shard to be restored has no readable snapshot, or a shard that is to live here from now on
  //                        was not followed to its end
  absl::Status Install(const wire::InstallShardsRequest& request);
  // Returns what the restored shards know of workers, until the first set of members.
  wire::InstallShardsReply Restored() const;
  // Installs the set of live workers, and ends the streams of workers that are no longer in it.
  //   kFailedPrecondition  another job, an older generation, or an older epoch
  //   kUnavailable         no shards yet, this server is a backup, a later generation, or another life is meant
  absl::StatusOr<wire::SetMembersReply> SetMembers(const wire::SetMembersRequest& request);

  // Returns the limits beyond which streams parse no frame: parsing would take memory and time before anything could be
  // refused.
  rpc::FrameLimits frame_limits() const;
  // Returns the number of bytes beside its payload up to which a frame is parsed in microseconds.
  size_t ordinary_header_bytes() const;
  // Handles one frame of a stream, and its payload. Returns the status that ends the stream; nullopt if the stream goes
  // on.
  std::optional<absl::Status> Receive(Peer& peer, const wire::WorkerFrame& frame, const rpc::Payload& payload);
  // Handles the end of a stream. Repeated calls change nothing.
  void Closed(Peer& peer);

  // Grants shared memory to a worker of this host.
  //   kFailedPrecondition  another job
  //   kUnavailable         no shards yet, or they do not lie in shared memory
  //   kResourceExhausted   too many workers have asked and opened no stream
  absl::StatusOr<SegmentGrant> GrantSegments(const wire::SegmentRequest& request,
                                             std::shared_ptr<const shm::MappedSegment> push_segment);

  // Returns a snapshot of the shard; nullopt if it has no weights yet, or is not here (any more).
  std::optional<ShardSnapshot> TakeSnapshot(ShardId shard) const;
  // Records the outcome of writing such a snapshot.
  void SnapshotDone(ShardId shard, const absl::StatusOr<KeptSnapshot>& kept);

  // Begins a checkpoint; see ShardCuts.
  //   kUnavailable         no shards yet
  //   kFailedPrecondition  another job or generation
  //   as ShardCuts::Begin()
  absl::StatusOr<wire::BeginCheckpointReply> BeginCheckpoint(const wire::BeginCheckpointRequest& request);
  ShardCuts& cuts() { return cuts_; }

  // --- Replication ---

  // Attaches the stream that a backup, or a server that takes shards, has opened.
  //   kFailedPrecondition  the hello names another job, server or life, or this server has no use for a backup
  //   kUnavailable         no shards yet, this server is a backup itself, or an earlier backup has not been given up
  absl::Status AttachBackup(ReplicaSink& sink, const wire::BackupHello& hello);
  // Returns the log; null if no server may follow this one, or a part of it.
  ReplicaLog* log() { return log_.get(); }
  // Returns the first message of a new stream to the server that is followed: as a backup, or to take its shards.
  // Nullopt if this server is no backup and takes no shards (any more).
  std::optional<wire::BackupHello> BeginFollowing();
  // Handles one frame of that stream. An error ends the stream.
  absl::Status Follow(const wire::ReplicaFrame& frame, const rpc::Payload& payload);
  // Returns the feed, which says what to answer; null if this server is no backup and takes no shards.
  const BackupFeed* feed() const { return taken_ != nullptr ? taken_->feed.get() : feed_.get(); }

  // --- Shards that move: shard_table_moves.cc; Install() says where they come to live ---

  // Begins to take shards from another server, or gives that up if the request names no server.
  //   kUnavailable         as in Install()
  //   kFailedPrecondition  the request is for another job or server, or a later move was begun
  //   kInvalidArgument     an impossible shard, or one that is here
  absl::Status Take(const wire::TakeShardsRequest& request);

  void Tick();
  void Retry();
  Progress progress() const;

 private:
  // Returns true if the request gives this process the place of the server that it has followed.
  bool IsPromotion(const wire::InstallShardsRequest& request) const;
  absl::Status Promote(const wire::InstallShardsRequest& request);
  absl::Status InstallBackup(const wire::InstallShardsRequest& request);
  static std::string WhatIsInstalled(wire::InstallShardsRequest request);
  // Opens a log: from now on, answers of these shards wait for the follower. `move`: as in ReplicaLog::Options.
  void OpenLog(absl::Time serve_from, const std::vector<ShardId>& shards, uint64_t move);
  void CloseLog(const absl::Status& why);
  absl::Status AttachTaker(ReplicaSink& sink, const wire::BackupHello& hello);
  std::optional<wire::BackupHello> BeginTaking();
  absl::Status FollowTaken(const wire::ReplicaFrame& frame, const rpc::Payload& payload);
  void ForgetTaken();
  // Returns true if the request changes which shards live here.
  bool IsMove(const wire::InstallShardsRequest& request) const;
  absl::Status CheckMove(const wire::InstallShardsRequest& request) const;
  absl::Status Move(const wire::InstallShardsRequest& request);
  // Gives up all shards except these.
  void GiveUp(const std::set<uint32_t>& wanted);
  std::vector<ShardId> ShardsHere() const;
  // Makes room in the staging budget for these shards together, at least.
  void MakeBudget(const wire::InstallShardsRequest& request);
  // Checks that the scheduler means this process. A process may have the address of a dead one before the scheduler
  // knows; the scheduler is then told to try again, until it does know.
  absl::Status CheckCallee(uint64_t job, uint64_t incarnation) const;
  absl::Status CheckInstall(const wire::InstallShardsRequest& request) const;
  // Makes room in the staging budget for `workers` workers: more may come than the job has asked for.
  void MakeRoomFor(uint64_t workers);
  // Adds the workers that the shards have fenced, with positions that hold for all of them.
  void AddFenced(wire::SetMembersReply& reply) const;
  // Checks that the frame is for this job and this shard map.
  absl::Status CheckFrame(const wire::WorkerFrame& frame) const;
  // `valid`: result of CheckFrame().
  std::optional<absl::Status> Receive(Peer& peer, const wire::WorkerItem& item, rpc::Payload payload,
                                      const absl::Status& valid);

  absl::Status Open(Peer& peer, const wire::Hello& hello);
  absl::Status Join(const Caller& caller, const wire::Hello& hello, wire::Welcome& welcome);
  // Ends another stream of the same worker.
  void Supersede(const Caller& next);
  void Push(const Caller& caller, const wire::PushChunk& chunk, rpc::Payload payload);
  void Pull(const Caller& caller, const wire::Pull& pull);
  void Release(const Caller& caller, const wire::Release& release);
  void Refuse(Peer& peer, const wire::WorkerItem& item, const absl::Status& status);
  absl::Status UnknownShard(uint32_t shard) const;
  // Checks the number of shards that an item names, so that no item makes the sequencer go over shards for longer than
  // any other.
  absl::Status CheckCount(absl::string_view what, int named) const;
  // Refuses a pull, and returns true, if its frame has asked for too many shards. `asked`: shards that the frame has
  // asked for so far, this pull included.
  bool AsksTooMuch(Peer& peer, const wire::WorkerItem& item, size_t asked);
  void EndWhere(const std::function<bool(const Caller&)>& which, const absl::Status& status);

  // Shards that are to move here and still live elsewhere.
  struct Taken {
    wire::InstallShardsRequest install;  // the shards, and where they live
    BackupFeed::Hosts hosts;
    std::unique_ptr<BackupFeed> feed;  // feed of the current or last stream; null before the first
    bool begins = false;               // true until the new stream brings something
  };

  const job::Job job_;
  const Timeouts timeouts_;
  ServiceMetrics& metrics_;
  const TimeSource& time_;
  const Hooks hooks_;
  ShardBuilder builder_;
  ShardCuts cuts_;
  SegmentGrants grants_;

  ServerIdentity identity_;
  std::string installed_;  // installed request as bytes, without its restore; empty before
  Generation generation_;
  bool members_known_ = false;  // true once a set of members has come for these shards
  // Declared before hosts_, whose reservations it counts.
  std::unique_ptr<StagingBudget> budget_;
  std::map<uint32_t, std::unique_ptr<ShardHost>> hosts_;
  // Declared after hosts_, because it is their journal.
  std::unique_ptr<ReplicaLog> log_;
  // State of a backup: feed of the current or last stream, and the request that made this process a backup.
  std::unique_ptr<BackupFeed> feed_;
  wire::InstallShardsRequest backup_;
  // Null if no shards are to move here. Declared after budget_.
  std::unique_ptr<Taken> taken_;
  uint64_t last_move_ = 0;
  uint64_t attachments_ = 0;  // number of attachments of closed logs
  bool begins_ = false;       // true until the new stream brings something; feed_ belongs to the stream before
  std::map<ShardId, KeptSnapshot> kept_;  // newest snapshot of each shard
  std::map<ShardId, std::string> snapshot_errors_;
  std::map<const Peer*, Caller> callers_;
};

}  // namespace slackline::ps
