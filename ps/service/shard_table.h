// All shards of one server process, and who talks to them: the whole service but for gRPC.
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
#include "common/clock.h"
#include "common/rpc/frame.h"
#include "common/shm/loan_flag.h"
#include "common/shm/segment.h"
#include "common/timeouts.h"
#include "job.pb.h"
#include "parameter_server.pb.h"
#include "ps/service/backup_feed.h"
#include "ps/service/checkpoint_writer.h"
#include "ps/service/peer.h"
#include "ps/service/replica_log.h"
#include "ps/service/service_metrics.h"
#include "ps/service/shard_host.h"
#include "ps/service/snapshot_keeper.h"
#include "ps/service/staging.h"

namespace slackline::ps {

// Who this process is, as the scheduler told it.
struct ServerIdentity {
  JobId job;
  ServerId server;
  Incarnation incarnation = {};
};

// Thread-safety: none; the sequencer calls it.
// Ownership:     borrows metrics, time, and each peer from its Hello until Closed() or until it was ended.
// Invariant:     nothing received stops the process; what is refused changes nothing.
class ShardTable {
 public:
  struct Progress {
    uint64_t version_min = 0;
    uint64_t version_max = 0;
    bool seeded = false;
    // Every shard has a snapshot on disk.
    bool durable = false;
    // Why the last snapshot of some shard failed; empty where none did.
    std::string snapshot_error = {};
    uint64_t staging_bytes = 0;
    // As checkpoint() has it.
    wire::CheckpointProgress checkpoint = {};
    // As ReplicaLog has it.
    wire::BackupProgress backup = {};
    // It is the backup of another.
    bool follows = false;
  };

  // What the table tells whoever runs it.
  struct Hooks {
    // As in ShardConfig.
    std::function<void()> on_unpinned;
    std::function<void()> on_seeded;
    // The shards are installed and these keep their snapshots: TakeSnapshot() is wanted for each now and then. Null: no
    // snapshots are kept, whatever the request says.
    std::function<void(std::vector<StoredShard> stores)> on_stores;
    // These shards live elsewhere now: their stores are to be closed. Null where shards never move.
    std::function<void(const std::vector<ShardId>& shards)> on_stores_gone = nullptr;
    // All shards have their cuts for a checkpoint: CheckpointDone() is to say what became of them. Null: this server
    // makes none.
    std::function<void(CheckpointCut cut)> on_cut = nullptr;
    // This process is the backup of that one, or takes shards from it: BeginFollowing() and Follow() are wanted with
    // what its stream brings; null: it is none any more. Null: this server can be none.
    std::function<void(const wire::ReplicationSource* source)> on_backup = nullptr;
    // As in StoreOptions.
    std::function<absl::StatusOr<std::unique_ptr<Database>>(const std::filesystem::path& folder)> open_database =
        nullptr;
  };

  ShardTable(const job::Job& job, const Timeouts& timeouts, ServiceMetrics& metrics, const TimeSource& time,
             Hooks hooks);
  ~ShardTable();

  void SetIdentity(const ServerIdentity& identity) { identity_ = identity; }
  //   kFailedPrecondition  this server works for another job
  absl::Status CheckJob(JobId job) const;

  // With a restore it reads the snapshots, and takes as long.
  //   kUnavailable         this process does not know its own number yet, or another one has the snapshots open
  //   kFailedPrecondition  another job, another server, or other shards are installed
  //   kInvalidArgument     an impossible shard, or staging that cannot hold what the mode needs
  //   kFailedPrecondition  more weights than the machine has memory for
  //   kDataLoss            a shard that is to be restored has no snapshot that can be read, or one that is to live here
  //                        from now on was not followed to its end
  absl::Status Install(const wire::InstallShardsRequest& request);
  // Ends the streams of workers that are no longer in the set.
  //   kFailedPrecondition  another job or generation, or an older epoch
  absl::StatusOr<wire::SetMembersReply> SetMembers(const wire::SetMembersRequest& request);

  // Streams parse no frame beyond these limits: it would take memory and time before anything could be refused.
  rpc::FrameLimits frame_limits() const;
  // Frames with at most this much beside their payload are parsed in microseconds.
  size_t ordinary_header_bytes() const;
  // One frame from a stream, and its payload. Returns what ends the stream; nullopt while it goes on.
  std::optional<absl::Status> Receive(Peer& peer, const wire::WorkerFrame& frame, const rpc::Payload& payload);
  // The stream has ended. Repeated calls change nothing.
  void Closed(Peer& peer);

  // A worker of this host wants to share memory: the shards' segments for it, and its own for the stream that it will
  // open with the token.
  struct SegmentGrant {
    wire::SegmentOffer offer;
    std::vector<shm::SharedDescriptor> descriptors;  // one a shard of the offer, and the loan flag's
  };
  //   kFailedPrecondition  another job
  //   kUnavailable         no shards yet, or they do not lie in shared memory
  //   kResourceExhausted   too many have asked and opened no stream
  absl::StatusOr<SegmentGrant> GrantSegments(const wire::SegmentRequest& request,
                                             std::shared_ptr<const shm::MappedSegment> push_segment);

  // Nullopt before it has weights, and of a shard that is not here (any more).
  std::optional<ShardSnapshot> TakeSnapshot(ShardId shard) const;
  // What became of it.
  void SnapshotDone(ShardId shard, const absl::StatusOr<KeptSnapshot>& kept);

  // Cuts the shards, now or when they get to the version that is wanted; replaces an earlier cut that is not complete.
  //   kUnavailable         no shards yet
  //   kFailedPrecondition  another job or generation, a shard without weights, or a later checkpoint was begun
  absl::StatusOr<wire::BeginCheckpointReply> BeginCheckpoint(const wire::BeginCheckpointRequest& request);
  // What became of a cut. One that was replaced meanwhile is forgotten.
  void CheckpointDone(uint64_t checkpoint, uint32_t attempt, const CheckpointWriter::Written& written);
  // The scheduler knows.
  void CheckpointHeard(uint64_t checkpoint);
  // Of the last one that was begun; empty once it was heard.
  wire::CheckpointProgress checkpoint() const;

  // --- Replication: replicate.cc ---

  // A backup has opened a stream.
  //   kFailedPrecondition  another job, server or life is meant, or this server has no use for a backup
  //   kUnavailable         no shards yet, it is a backup itself, or an earlier one has not been given up
  absl::Status AttachBackup(ReplicaSink& sink, const wire::BackupHello& hello);
  // Null where nobody is to follow this server, or a part of it.
  ReplicaLog* log() { return log_.get(); }
  // As a backup, or one that takes shards: what a new stream to the server says first. Nullopt when this is no backup
  // (any more).
  std::optional<wire::BackupHello> BeginFollowing();
  // One frame of it. An error ends the stream.
  absl::Status Follow(const wire::ReplicaFrame& frame, const rpc::Payload& payload);
  // What to answer. Null when this is no backup.
  const BackupFeed* feed() const { return taken_ != nullptr ? taken_->feed.get() : feed_.get(); }

  // --- Shards that move: shard_move.cc; where they come to live is for Install() to say ---

  //   kUnavailable         as in Install()
  //   kFailedPrecondition  another job or server is meant, or a later move was begun
  //   kInvalidArgument     an impossible shard, or one that is here
  absl::Status Take(const wire::TakeShardsRequest& request);

  void Tick();
  void Retry();
  Progress progress() const;

  // For tests of the tests: a planted bug must be caught by the simulation.
  struct Bugs {
    bool take_old_generations = false;
    Engine::Bugs engine;
    ReplicaLog::Bugs log;
  };
  // Before Install().
  void PlantForTest(const Bugs& bugs) { bugs_ = bugs; }

 private:
  void BeginCut(const wire::BeginCheckpointRequest& request);
  // It gives this process the place of the server that it has followed.
  bool IsPromotion(const wire::InstallShardsRequest& request) const;
  absl::Status Promote(const wire::InstallShardsRequest& request);
  absl::Status InstallBackup(const wire::InstallShardsRequest& request);
  static std::string WhatIsInstalled(wire::InstallShardsRequest request);
  // From now on answers of these shards wait for whoever follows. `move`: as in ReplicaLog::Options.
  void OpenLog(absl::Time serve_from, const std::vector<ShardId>& shards, uint64_t move);
  void CloseLog(const absl::Status& why);
  absl::Status AttachTaker(ReplicaSink& sink, const wire::BackupHello& hello);
  std::optional<wire::BackupHello> BeginTaking();
  absl::Status FollowTaken(const wire::ReplicaFrame& frame, const rpc::Payload& payload);
  void ForgetTaken();
  // It changes which shards live here.
  bool IsMove(const wire::InstallShardsRequest& request) const;
  absl::Status CheckMove(const wire::InstallShardsRequest& request) const;
  absl::Status Move(const wire::InstallShardsRequest& request);
  // All shards but these.
  void GiveUp(const std::set<uint32_t>& wanted);
  std::vector<ShardId> ShardsHere() const;
  // Room for these shards together, at least.
  void MakeBudget(const wire::InstallShardsRequest& request);
  // Not opened yet.
  StoredShard StoreOf(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec,
                      const ShardHost& host) const;
  absl::StatusOr<std::map<uint32_t, std::unique_ptr<ShardHost>>> MakeHosts(const wire::InstallShardsRequest& request,
                                                                           std::vector<StoredShard>& stores);
  // Whether the scheduler means this process. Another may have got the address of one that is dead, and the scheduler
  // not know yet: it is told to try again, until it does.
  absl::Status CheckCallee(uint64_t job, uint64_t incarnation) const;
  absl::Status CheckInstall(const wire::InstallShardsRequest& request) const;
  // More workers than the job has asked for may come.
  void MakeRoomFor(uint64_t workers);
  absl::Status CheckExtents(const wire::InstallShardsRequest& request) const;
  ShardConfig MakeConfig(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec) const;
  // With what it goes on from, where the request says so; and its store in `stores`, where it has one.
  absl::StatusOr<std::unique_ptr<ShardHost>> MakeHost(const wire::InstallShardsRequest& request,
                                                      const wire::ShardSpec& spec, bool shared_memory,
                                                      std::vector<StoredShard>& stores);
  // The newest snapshot that can be read.
  absl::StatusOr<std::unique_ptr<ShardHost>> RestoreHost(const ShardConfig& config, const SnapshotStore& store,
                                                         Lineage lineage) const;
  // Fills a new host from the checkpoint, where the request names one.
  absl::Status ReadCheckpoint(const wire::InstallShardsRequest& request, ShardHost& host) const;
  // Whether the frame is for this job and this shard map.
  absl::Status CheckFrame(const wire::WorkerFrame& frame) const;
  // `valid` as CheckFrame() says.
  std::optional<absl::Status> Receive(Peer& peer, const wire::WorkerItem& item, rpc::Payload payload,
                                      const absl::Status& valid);

  absl::Status Open(Peer& peer, const wire::Hello& hello);
  absl::Status Join(const Caller& caller, const wire::Hello& hello, wire::Welcome& welcome);
  // Another stream of the same worker gives way.
  void Supersede(const Caller& next);
  void Push(const Caller& caller, const wire::PushChunk& chunk, rpc::Payload payload);
  void Pull(const Caller& caller, const wire::Pull& pull);
  void Release(const Caller& caller, const wire::Release& release);
  // The chunk's bytes in the worker's segment.
  static absl::StatusOr<rpc::Payload> FindInSegment(const Caller& caller, const wire::PushChunk& chunk,
                                                    const rpc::Payload& payload);
  // Workers that have not come with their token in time.
  void ForgetOldGrants();
  // What was granted to the stream that says this token; the token is then used up.
  void TakeGrant(const std::string& token, Caller& caller);
  void Refuse(Peer& peer, const wire::WorkerItem& item, const absl::Status& status);
  absl::Status UnknownShard(uint32_t shard) const;
  // One item must not make the sequencer go over shards for longer than any other.
  absl::Status CheckCount(absl::string_view what, int named) const;
  // Refuses a pull of a frame that has asked for so many shards with it, if they are too many.
  bool AsksTooMuch(Peer& peer, const wire::WorkerItem& item, size_t asked);
  void EndWhere(const std::function<bool(const Caller&)>& which, const absl::Status& status);

  // Segments for a stream that is not open yet.
  struct Grant {
    Sender sender;
    std::shared_ptr<const shm::MappedSegment> push_segment;
    std::shared_ptr<shm::LoanFlag> loan;
    absl::Time since;
  };

  // Shards that live elsewhere still.
  struct Taken {
    wire::InstallShardsRequest install;  // what they are, and where
    BackupFeed::Hosts hosts;
    std::unique_ptr<BackupFeed> feed;  // of the stream in progress, or the last one; null before
    bool begins = false;               // a stream has brought nothing yet
  };

  const job::Job job_;
  const Timeouts timeouts_;
  ServiceMetrics& metrics_;
  const TimeSource& time_;
  const Hooks hooks_;
  Bugs bugs_;

  ServerIdentity identity_;
  std::string installed_;  // the request as bytes, but for a restore; empty before
  Generation generation_;
  bool members_known_ = false;  // a set has come in this life
  // Before hosts_, whose reservations it counts.
  std::unique_ptr<StagingBudget> budget_;
  std::map<uint32_t, std::unique_ptr<ShardHost>> hosts_;
  // After hosts_, which it is the journal of.
  std::unique_ptr<ReplicaLog> log_;
  // As a backup: of the stream in progress, or the last one, and what it was told to be.
  std::unique_ptr<BackupFeed> feed_;
  wire::InstallShardsRequest backup_;
  // Null where nothing is to move here. After budget_.
  std::unique_ptr<Taken> taken_;
  uint64_t last_move_ = 0;
  uint64_t attachments_ = 0;              // of logs that are closed
  bool begins_ = false;                   // a stream has brought nothing yet: feed_ is of the one before it
  std::map<ShardId, KeptSnapshot> kept_;  // the newest of each shard
  std::map<ShardId, std::string> snapshot_errors_;
  wire::CheckpointProgress checkpoint_;  // the last one; number 0 before
  uint64_t checkpoint_heard_ = 0;
  bool disk_full_said_ = false;  // the last checkpoint failed for that
  absl::Time cut_begun_;         // of checkpoint_
  CheckpointCut cut_;            // of checkpoint_, until all shards are in it
  std::map<const Peer*, Caller> callers_;
  std::map<std::string, Grant> grants_;  // by token
};

}  // namespace slackline::ps
