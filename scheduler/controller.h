// The scheduler itself, without its wires: what each request does to the pure cores (membership, tasks, progress),
// and what follows for the others.
//
// A job goes through STARTING (until all servers have their shards and cluster.workers workers are live), TRAINING,
// and one of DONE, FAILED, STOPPED. After the end the workers are told to leave, then the servers to stop; then
// finished() is true.
//
// Thread-safety: safe; one lock around everything but `images_`, never held while waiting for anything.
// Ownership:     borrows `time` and `servers`.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "checkpoint.pb.h"
#include "common/clock.h"
#include "common/timeouts.h"
#include "job.pb.h"
#include "scheduler.pb.h"
#include "scheduler/batch_sizes.h"
#include "scheduler/checkpoint_round.h"
#include "scheduler/divergence_guard.h"
#include "scheduler/epoch_book.h"
#include "scheduler/event_log.h"
#include "scheduler/image_directory.h"
#include "scheduler/link_shares.h"
#include "scheduler/members_view.h"
#include "scheduler/membership.h"
#include "scheduler/model_layout.h"
#include "scheduler/name_claims.h"
#include "scheduler/placement.h"
#include "scheduler/progress.h"
#include "scheduler/report.h"
#include "scheduler/run_summary.h"
#include "scheduler/server_calls.h"
#include "scheduler/staleness_bound.h"
#include "scheduler/stall_watch.h"
#include "scheduler/tasks.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// The shard map of a job whose servers have all stayed.
inline constexpr Generation kFirstGeneration{1};

wire::ShardSpec ToWire(const ShardPlace& place);

class Controller : public ServerObserver {
 public:
  struct Config {
    job::Job job;  // resolved
    uint64_t fingerprint = 0;
    JobId id;
    std::string run_folder;
    // Where servers keep snapshots; empty: they keep none, and the death of one ends the job.
    std::string snapshot_folder = {};
    // Where checkpoints are made; empty: none are.
    std::string checkpoint_folder = {};
    uint64_t checkpoint_number = 0;  // those up to here are taken
    // What Save() gives is put on a disk, and StateKept() says so: nobody is told that the job has ended before that is
    // kept, or a scheduler that is started again would wait for workers that have left.
    bool keeps_state = false;
    Timeouts timeouts = {};
    // Of the status page; empty where there is none.
    std::string page = {};
    // As EventLog has it: EventsRecorded() is called after each TakeEvents().
    bool tells_after_record = false;
    bool unwatched = false;  // nobody will ask how the job has ended
  };

  Controller(const Config& config, const TimeSource& time, ServerCalls& servers);

  // The requests of scheduler.proto, which says what they do. Besides the codes there:
  //   kFailedPrecondition  another job's number, or an incarnation that is not a member any more
  //   kUnavailable         too early: ask again
  absl::StatusOr<wire::RegisterServerReply> RegisterServer(const wire::RegisterServerRequest& request);
  absl::StatusOr<wire::RegisterWorkerReply> RegisterWorker(const wire::RegisterWorkerRequest& request);
  absl::StatusOr<wire::HeartbeatReply> Heartbeat(const wire::HeartbeatRequest& request);
  absl::StatusOr<wire::FindImagesReply> FindImages(const wire::FindImagesRequest& request);
  absl::StatusOr<wire::GetShardMapReply> GetShardMap(const wire::GetShardMapRequest& request);
  absl::StatusOr<wire::NextTaskReply> NextTask(const wire::NextTaskRequest& request);
  absl::Status ReportEvaluation(const wire::EvaluationReport& request);
  // The test accuracy of the weights of just now, with so many samples applied, which no worker was asked for.
  void NoteObserved(wire::EvaluationReport report, uint64_t samples_applied);
  wire::GetStatusReply GetStatus();
  // All that is known here of what the status page shows: without curve, events, alerts, disk, and checkpoints kept.
  // Not a sign that somebody has heard how the job has ended.
  wire::JobStatus View() const;
  absl::StatusOr<wire::CheckpointReply> Checkpoint(const wire::CheckpointRequest& request);
  absl::StatusOr<wire::ChangeServersReply> ChangeServers(const wire::ChangeServersRequest& request);
  absl::Status ReportExit(const wire::ReportExitRequest& request);
  // Ends the job; one that has ended already stays as it ended.
  void StopJob(const std::string& reason, bool failed);
  // The scheduler itself is to go: ends the job; of one that has ended, nobody will ask any more how it ended.
  void Dismiss(const std::string& reason);

  void Installed(ServerRef server) override;
  void MembersInstalled(ServerRef server, const wire::SetMembersReply& reply) override;
  void Stopped(ServerRef server) override;
  void CheckpointBegun(ServerRef server, const wire::BeginCheckpointRequest& request,
                       const absl::StatusOr<wire::BeginCheckpointReply>& reply) override;
  void TakeRefused(ServerRef server, const wire::TakeShardsRequest& request, const absl::Status& status) override;
  void Refused(ServerRef server, const absl::Status& status) override;

  // Notices who is silent, what is late, and what is over. Call every T/2 or more often.
  void Tick();

  // The job has ended and everybody has left, or had time enough to.
  bool finished() const;
  wire::JobState state() const;
  // The job was stopped, and its servers' own snapshots are newer than the last checkpoint: with the saved state a
  // scheduler that is started again goes on from them.
  bool StoppedUnsaved() const;

  // What a scheduler that is started again needs to go on from here.
  state::Scheduler Save(absl::Time wall_time) const;
  // This state would survive the process.
  void StateKept(const state::Scheduler& state);
  // Goes on from there, for a controller that is still as it was made: calls all servers, and waits to hear of
  // everybody.
  //   kFailedPrecondition  it is the state of another job
  //   kDataLoss            it makes no sense
  absl::Status Restore(const state::Scheduler& state, absl::Time wall_time);

  // Begins where a checkpoint of a run has ended, for a controller that is still as it was made; with other servers and
  // workers.
  //   kFailedPrecondition  all of training is done there
  //   kDataLoss            it makes no sense
  absl::Status GoOnFrom(const checkpoint::Manifest& manifest, const std::string& folder);
  // All files of this one are written: its folder is to get its name, which CheckpointCommitted() is told.
  std::optional<checkpoint::Manifest> CheckpointToCommit() const;
  // Number of the last one that failed; 0 for none.
  uint64_t CheckpointThatFailed() const;
  // The folder of the checkpoint that the run began with; empty: with none.
  std::string GoesOnFrom() const;
  // `folder`: of the checkpoint, or why there is none. Requires: CheckpointToCommit().
  void CheckpointCommitted(const absl::StatusOr<std::string>& folder);

  // Reports and events since the last call, oldest first.
  std::vector<Report> TakeReports();
  // Rows of epochs.csv, all of them, if there is something new.
  std::optional<std::vector<EpochFigures>> TakeEpochs();
  std::deque<std::string> TakeEvents();
  void EventsRecorded();
  void AddEvent(const std::string& event);
  // TakeEvents() would have some.
  bool HasEvents() const;
  // The run up to now.
  RunSummary Summary();
  // The members now; and where their metrics are, sorted, of those that are there.
  MembersView Members() const;
  std::vector<ScrapeTarget> ScrapeTargets() const;

 private:
  // --- controller.cc: requests ---
  absl::Status CheckJob(uint64_t job) const;
  absl::Status CheckFingerprint(const std::string& who, uint64_t fingerprint) const;
  // Whether no server of this name lives, or may soon be found dead.
  absl::Status CheckNoNamesake(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LearnModel(const wire::RegisterWorkerRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A sign of life of a worker, and what it says of its progress (null for nothing).
  //   kFailedPrecondition  it is not a member any more
  absl::Status HearWorker(const Holder& holder, const wire::WorkerProgress* progress, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Says when a worker begins to wait for what no process of the job can give, and when it goes on.
  void HearWait(const Holder& holder, const wire::WorkerProgress& progress, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Samples of the batches that the worker gets with its next range.
  uint32_t BatchSizeFor(WorkerId worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // No worker that could do its work is much faster, as far as is known.
  bool Swift(WorkerId worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Trains(const Membership::Worker& worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<wire::HeartbeatReply> WorkerHeartbeat(const wire::HeartbeatRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<wire::HeartbeatReply> ServerHeartbeat(const wire::HeartbeatRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  wire::NextTaskReply Hand(const Holder& holder, const Work& work, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until then every live worker sends its initial weights: whoever dies over it leaves nobody waiting.
  bool AllSeeded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_workers.cc: workers come, and are forgotten ---
  // The worker whose place this process takes, if any: its own earlier life, or a silent worker of its name.
  //   kUnavailable    a worker of this name may live: ask again
  //   kAlreadyExists  it does
  absl::StatusOr<std::optional<WorkerId>> PreviousOf(const wire::RegisterWorkerRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetDeparted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_evaluations.cc ---
  // Also whether it is the best so far, and whether training is to end.
  void NoteEvaluation(const wire::EvaluationReport& report, const EvaluationSummary& begun, const std::string& by)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_run.cc: what follows ---
  void Apply(const MembershipActions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Act(const SendMembersAction& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Act(const WorkerLiveAction& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Act(const WorkerFencedAction& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Act(const WorkerDeadAction& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Act(const ServerDeadAction& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The worker trains no more, for whatever reason.
  void WorkerGone(const Holder& holder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As PlaceShards() and NextMove() have them.
  std::map<ServerId, double> Shares() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellShares(const std::map<ServerId, double>& shares) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the servers their shards once they and the model are known.
  void Place() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendInstall(ServerId server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the map in which the server got its shards in its present life.
  Generation GenerationOf(ServerId server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Its shards are on disk, and training can wait for it.
  bool MayComeBack(ServerId server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailIfServersStayAway(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginIfReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(wire::JobState state, const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It has, and others may know: the end is kept, or cannot be.
  bool Parting(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Goes on with the farewell.
  void PartTick(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllWorkersGone(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllServersGone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AllServersThere() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The process was stopped, or got no processor: forgives what that looks like.
  void ForgiveOwnSleep(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpelStalled(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailIfDeserted(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailIfNoRoom(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // "worker w-2", or what else Called() makes of it.
  std::string NameOf(WorkerId worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_backups.cc: durability replicated ---
  bool Replicated() const { return config_.job.durability().mode() == job::Durability::REPLICATED; }
  // A process that is to be a server's backup.
  absl::StatusOr<wire::RegisterServerReply> RegisterBackup(const wire::RegisterServerRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The server whose backup this could be, on another switch or at least another machine if that can be; nullopt where
  // all have theirs.
  std::optional<ServerId> ServerWithoutBackup(const wire::LocalAddress& backup) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendBackupInstall(ServerId server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsBackup(ServerRef server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<wire::HeartbeatReply> BackupHeartbeat(const wire::HeartbeatRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How the server says it stands with its backup. Returns the attachment that it need not wait for any more; 0 for
  // none.
  uint64_t HearBackup(ServerId server, const wire::BackupProgress& progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Its backup will not take over as it is.
  void Release(ServerId server, uint64_t attachment, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It is the server's backup no more.
  void DropBackup(ServerId server, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The backup gets the place of the server, which is dead. False where there is none that has all.
  // It is told so once that is saved: a scheduler that is started again must not give the place to the old one again.
  bool TakeOver(ServerId server, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BackupsKept(const state::Scheduler& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Promote(const state::Scheduler& saved) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A server that has never had a backup in step serves nobody, and that must come to an end.
  void FailIfNeverBacked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchBackups(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SaveBackups(state::Scheduler& state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RestoreBackups(const state::Scheduler& state, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillBackups(absl::Time now, wire::GetStatusReply& reply) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_moves.cc: servers that come and go while training goes on ---
  struct Move;
  struct Deposed;
  absl::Status CanChangeServers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // That the job is to have in the end.
  uint32_t ServersWanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<ServerId> ServerNamed(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string ServerNames() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string ServerName(ServerId server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ServerId NextServerId() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsJoining(ServerRef server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A process that is to get shards. kNotFound: it is something else.
  absl::StatusOr<wire::RegisterServerReply> RegisterJoining(const wire::RegisterServerRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<wire::HeartbeatReply> JoiningHeartbeat(const wire::HeartbeatRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropJoining(ServerId server, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Describe(const Move& move) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchMoves(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PlanMove(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendTake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As HearBackup(), of a server whose shards are to move.
  uint64_t HearMove(ServerId server, const wire::BackupProgress& progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From here on it happens, whoever dies.
  void CommitMove(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MoveKept(const state::Scheduler& saved) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The server that has the shards; and when they are not there any more, the one that is to have them.
  void TellMove() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellTaker() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It has shards that another is to give up before.
  bool HoldsShards(ServerId server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A move is decided and not saved: nobody is to act upon it yet.
  bool MapUnsaved() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the shard map that everybody may have; 0 before there is one.
  uint64_t PublicGeneration() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It is to take nothing, whatever an earlier scheduler or an earlier decision has said.
  void SendNothingToTake(ServerRef server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteDrained(const std::string& name, Deposed drained) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AwaitsGivingUp(ServerId server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void InstalledOfMove(ServerId server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ServerLostToMove(ServerId server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUpMove(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishDrains() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SaveMoves(state::Scheduler& state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RestoreMoves(const state::Scheduler& state, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillMoves(absl::Time now, wire::GetStatusReply& reply) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_checkpoint.cc ---
  absl::Status CanCheckpoint() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins what is due, and goes on with what was begun.
  void WatchCheckpoints(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginCheckpoint(const std::string& reason, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the last one, which failed on a full disk, is tried again.
  bool MayGetRoom(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Servers are to stay for the last one.
  bool AwaitsLastCheckpoint(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the number of the checkpoint whose outcome need not be told again; 0 for none.
  uint64_t HearCheckpoint(ServerId server, const wire::CheckpointProgress& progress)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the calls that the round wants, and ends it when it is over. Requires: there is one.
  void FollowCheckpoint(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the round up, but not what it was for.
  void DropRound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BestIsDueAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckpointFailed(uint64_t number, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillCheckpoint(absl::Time now, wire::GetStatusReply& reply) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_status.cc: what people see ---
  // What the job waits for while it starts; empty when for nothing.
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Does what is due at what is trained now. Says which epochs are over, but of many short ones only now and then.
  void FollowTraining(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddReport(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double ElapsedSeconds(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the samples of all epochs; never runs backwards but for ranges that are given out again.
  uint64_t SamplesDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of an evaluation that begins now.
  EvaluationSummary StandingAt(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t EpochsTrained() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t EpochInProgress() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillProgress(absl::Time now, wire::GetStatusReply& reply) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillMembers(absl::Time now, wire::GetStatusReply& reply) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_view.cc: the same for the status page ---
  void ViewProgress(absl::Time now, wire::JobProgress& out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ViewAsynchrony(wire::JobAsynchrony& out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ViewWorkers(absl::Time now, wire::JobStatus& out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  wire::WorkerView ViewWorker(WorkerId id, const Membership::Worker& worker, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ViewServers(absl::Time now, wire::JobStatus& out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ViewServer(ServerId id, const Membership::Server& server, absl::Time now, wire::ServerView& out) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ViewShards(wire::JobStatus& out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How fast the versions of a server's shards rise.
  void HearVersions(ServerId server, const wire::ServerProgress& progress, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_watch.cc: what the scheduler makes of how training goes ---
  void WatchDivergence() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is left of a run that diverges: "the last evaluation ...; no checkpoint was made".
  std::string LastGoodState() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchBound(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Says when a server begins to fail to write snapshots, and when it writes them again.
  void HearSnapshots(ServerId id, const wire::ServerProgress& now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Says once that shards are not on disk long after training began.
  void WatchSnapshots(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells people and servers, if there is a change.
  void ChangeBound(const std::optional<StalenessBound::Change>& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_state.cc: what outlives the scheduler ---
  state::Scheduler SaveLocked(absl::Time wall_time) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RestoreEvaluations(const state::Scheduler& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RestoreServers(const state::Members& members, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Who must be fenced before others get what they had.
  std::vector<std::pair<WorkerId, Incarnation>> Holders() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_members.cc ---
  void NoteServerMetrics(const wire::RegisterServerRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SaveMetrics(state::Scheduler& state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RestoreMetrics(const state::Scheduler& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_summary.cc ---
  // In the order in which their names were first heard of.
  std::vector<WorkerSummary> SummariseWorkers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Config config_;
  const TimeSource& time_;
  ServerCalls& servers_;

  mutable absl::Mutex mutex_;

  // The job.
  wire::JobState state_ ABSL_GUARDED_BY(mutex_) = wire::JOB_STARTING;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  const absl::Time created_;
  ImageDirectory images_;
  absl::Time began_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();    // training
  absl::Time trained_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // all of it: the final evaluation began
  absl::Time ended_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Time stopping_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // servers told to stop
  bool status_seen_ ABSL_GUARDED_BY(mutex_) = false;                      // since then
  bool finished_ ABSL_GUARDED_BY(mutex_) = false, end_kept_ ABSL_GUARDED_BY(mutex_) = false;

  // The members.
  Membership membership_ ABSL_GUARDED_BY(mutex_);
  // Where the metrics of servers and backups are, by name.
  std::map<std::string, std::string> server_metrics_ ABSL_GUARDED_BY(mutex_);
  std::map<WorkerId, WorkerOrigin> origins_ ABSL_GUARDED_BY(mutex_);
  NameClaims claims_ ABSL_GUARDED_BY(mutex_);
  struct VersionRate {
    absl::Time since;
    uint64_t version = 0;
    double per_second = 0;
  };
  std::map<ServerId, VersionRate> version_rates_ ABSL_GUARDED_BY(mutex_);
  std::map<ServerId, wire::ServerProgress> server_progress_ ABSL_GUARDED_BY(mutex_);
  std::map<ServerId, wire::LocalAddress> local_addresses_ ABSL_GUARDED_BY(mutex_);
  std::set<ServerId> installed_ ABSL_GUARDED_BY(mutex_);
  // Of the shard map, and for servers that have come back, of theirs.
  Generation generation_ ABSL_GUARDED_BY(mutex_) = kFirstGeneration;
  std::map<ServerId, Generation> server_generations_ ABSL_GUARDED_BY(mutex_);
  // Whose shards have all been on disk.
  std::set<ServerId> durable_ ABSL_GUARDED_BY(mutex_);
  bool warned_not_durable_ ABSL_GUARDED_BY(mutex_) = false;
  // That died in the middle of training and whose shards are not back yet.
  std::map<ServerId, absl::Time> lost_since_ ABSL_GUARDED_BY(mutex_);
  std::set<ServerId> stopped_ ABSL_GUARDED_BY(mutex_);

  // Who would take over.
  struct Backup {
    std::string name;
    std::string address;
    Incarnation incarnation;
    std::optional<wire::LocalAddress> local;
    absl::Time heard;
  };
  // A server, in one life, and its backups: attachments up to `released` will not take over, which is saved up to
  // `released_saved`; the backup of attachment `in_step` (0: none) has all that the server has answered.
  struct Pairing {
    Incarnation server;
    uint64_t released = 0;
    uint64_t released_saved = 0;
    uint64_t in_step = 0;
  };
  // Whose place was given to its backup, until its process registers anew.
  struct Deposed {
    Incarnation incarnation;
    ServerId server;
    std::string reason;
    absl::Time since = absl::InfinitePast();
  };
  void Depose(const std::string& name, Deposed deposed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::map<ServerId, Backup> backups_ ABSL_GUARDED_BY(mutex_);
  // Have had a backup in step, or have been one.
  std::set<ServerId> backed_once_ ABSL_GUARDED_BY(mutex_);
  absl::Time first_backup_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::map<ServerId, Pairing> pairings_ ABSL_GUARDED_BY(mutex_);
  std::set<ServerId> promoted_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Deposed> deposed_ ABSL_GUARDED_BY(mutex_);
  // Who is to be told, once it is saved, that it has taken over; and what the membership wants then.
  std::map<ServerId, MembershipActions> promotions_ ABSL_GUARDED_BY(mutex_);

  // A server that has no shards yet. The scheduler knows the same of it as of a backup.
  using Joining = Backup;
  struct Move {
    uint64_t number = 0;
    ServerId from;
    ServerId to;
    std::vector<ShardId> shards;
    Incarnation from_incarnation;
    Incarnation to_incarnation;
    absl::Time begun;
    Generation before;  // of the map, when it was decided
    // As in Pairing.
    uint64_t in_step = 0;
    uint64_t released = 0;
    bool committed = false;  // places_ has it
    bool told = false;       // the server that gives them up
    bool given_up = false;   // they are not there any more
    // What the membership wants when they are told.
    MembershipActions from_actions;
    MembershipActions to_actions;
  };
  std::map<ServerId, Joining> joining_ ABSL_GUARDED_BY(mutex_);
  // Places for servers that are not there yet; and all that were added.
  uint32_t servers_to_come_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t servers_added_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<ServerId> draining_ ABSL_GUARDED_BY(mutex_);
  // That have left.
  std::map<std::string, Deposed> drained_ ABSL_GUARDED_BY(mutex_);
  std::optional<Move> move_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_move_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t moves_made_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time move_again_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool placed_ ABSL_GUARDED_BY(mutex_) = false;      // otherwise than PlaceShards() says
  bool rebalances_ ABSL_GUARDED_BY(mutex_) = false;  // servers have joined
  std::set<Holder> told_to_leave_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_tick_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::optional<absl::Time> deserted_since_ ABSL_GUARDED_BY(mutex_);
  uint64_t worker_deaths_ ABSL_GUARDED_BY(mutex_) = 0;
  // Processes that ended before they registered, by name, for the message when the start fails.
  std::map<std::string, std::string> early_exits_ ABSL_GUARDED_BY(mutex_);

  // The model: known from the first worker on; placed once the servers are there.
  std::optional<wire::RegisterWorkerRequest> first_worker_ ABSL_GUARDED_BY(mutex_);
  ModelLayout layout_ ABSL_GUARDED_BY(mutex_);
  std::vector<ShardPlace> places_ ABSL_GUARDED_BY(mutex_);

  // The work; absent until the first worker has said how much data there is.
  std::optional<Tasks> tasks_ ABSL_GUARDED_BY(mutex_);
  std::map<Holder, EvaluationSummary> measured_ ABSL_GUARDED_BY(mutex_);  // from when an evaluation was handed out
  std::map<Holder, absl::Time> work_since_ ABSL_GUARDED_BY(mutex_);
  StallWatch stalls_ ABSL_GUARDED_BY(mutex_){config_.timeouts};
  // Who waits for room on a full disk, and since when: the time for all that is written at the end counts from then on.
  std::set<Holder> waits_for_room_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Time> no_room_since_ ABSL_GUARDED_BY(mutex_);

  // With training.batch balance.
  BatchSizes batch_sizes_ ABSL_GUARDED_BY(mutex_);

  // Whether training diverges, and what was known when that was last asked.
  DivergenceGuard guard_ ABSL_GUARDED_BY(mutex_);
  ProgressTotals guarded_ ABSL_GUARDED_BY(mutex_);
  uint64_t divergences_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Time> diverged_at_ ABSL_GUARDED_BY(mutex_);

  // The bound of ssp, absent in other modes, and what was known when it was last decided.
  struct Watched {
    absl::Time at = absl::InfiniteFuture();
    ProgressTotals totals;
    uint64_t slack_max = 0;  // since then
  };
  std::optional<StalenessBound> bound_ ABSL_GUARDED_BY(mutex_);
  Watched bound_watched_ ABSL_GUARDED_BY(mutex_);
  uint64_t bound_changes_ ABSL_GUARDED_BY(mutex_) = 0;

  struct Checkpoints {
    std::optional<CheckpointRound> round;  // that is being made
    state::Scheduler state;                // for it
    std::optional<checkpoint::Manifest> to_commit;
    uint64_t last_number = 0;
    absl::Time last_begun = absl::InfinitePast();
    absl::Duration took;  // of the one to commit, for its servers
    // Done and trained in the last one that is whole.
    uint32_t epochs = 0;
    std::optional<uint64_t> samples;
    bool last_tried = false;  // that at the end of the run
    bool no_room = false;     // the last one that failed did for that
    // The best one so far, and that of `round`.
    std::optional<EvaluationSummary> best_due;
    std::optional<EvaluationSummary> best_of_round;
    std::optional<absl::Time> last_since;
    uint64_t whole = 0;  // the last one that is
    absl::Time whole_at;
    std::string folder;
    uint64_t failed = 0;  // the last one that did
    std::string error;
    absl::Time failed_at = absl::InfinitePast();
    uint64_t made = 0;  // by this scheduler
    uint64_t failures = 0;
  };
  Checkpoints checkpoint_ ABSL_GUARDED_BY(mutex_);
  // The checkpoint that the run began with; empty: with none.
  std::string goes_on_from_ ABSL_GUARDED_BY(mutex_);
  uint64_t data_kept_ ABSL_GUARDED_BY(mutex_) = 0;         // of its data, where that counts
  absl::Duration elapsed_before_ ABSL_GUARDED_BY(mutex_);  // trained before it

  // What people see.
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  EventLog events_ ABSL_GUARDED_BY(mutex_);
  Audience exit_audience_ ABSL_GUARDED_BY(mutex_) = Audience::kPeople;  // of deaths that ReportExit() brings about
  absl::Time epoch_told_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::optional<wire::EvaluationReport> evaluation_ ABSL_GUARDED_BY(mutex_);
  bool evaluation_reported_ ABSL_GUARDED_BY(mutex_) = true;
  std::vector<EvaluationSummary> evaluations_ ABSL_GUARDED_BY(mutex_);  // oldest first
  size_t evaluations_before_ ABSL_GUARDED_BY(mutex_) = 0;               // this run went on from a checkpoint
  absl::Time last_report_ ABSL_GUARDED_BY(mutex_);
  std::vector<Report> reports_ ABSL_GUARDED_BY(mutex_);
  EpochBook epoch_book_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::scheduler
