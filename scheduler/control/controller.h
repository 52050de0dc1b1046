// The scheduler without its network code: applies each request to the pure cores (membership, tasks, progress), and
// does what follows from it for the other members.
//
// A job is STARTING until all servers have their shards and cluster.workers workers are live. Then it is TRAINING, and
// at last DONE, FAILED or STOPPED. After the end the workers are told to leave, then the servers to stop; then
// finished() is true.
//
// Thread-safety: safe; one lock for the images and one for all else, never held while waiting for anything.
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
#include "common/protocol_version.h"
#include "common/timeouts.h"
#include "job.pb.h"
#include "scheduler.pb.h"
#include "scheduler/base/event_log.h"
#include "scheduler/base/members_view.h"
#include "scheduler/base/model_layout.h"
#include "scheduler/base/report.h"
#include "scheduler/base/server_calls.h"
#include "scheduler/checkpoint/checkpoints.h"
#include "scheduler/checkpoint/room_wait.h"
#include "scheduler/members/backups.h"
#include "scheduler/members/job_facts.h"
#include "scheduler/members/membership.h"
#include "scheduler/members/moves.h"
#include "scheduler/members/name_claims.h"
#include "scheduler/members/shard_directory.h"
#include "scheduler/members/spare_server.h"
#include "scheduler/record/run_summary.h"
#include "scheduler/watch/epoch_book.h"
#include "scheduler/watch/evaluations.h"
#include "scheduler/watch/progress.h"
#include "scheduler/watch/stall_watch.h"
#include "scheduler/watch/training_watch.h"
#include "scheduler/work/batch_sizes.h"
#include "scheduler/work/image_directory.h"
#include "scheduler/work/tasks.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

class Controller : public ServerObserver, private Moves::Owner {
 public:
  struct Config {
    job::Job job;  // resolved
    uint64_t fingerprint = 0;
    JobId id;
    std::string run_folder;
    // Folder for the servers' snapshots; empty: servers keep none, and the death of a server ends the job.
    std::string snapshot_folder = {};
    // Folder for checkpoints; empty: none are made.
    std::string checkpoint_folder = {};
    uint64_t checkpoint_number = 0;  // numbers up to this one are taken
    // True if the state from Save() is written to disk and StateKept() is called. The end of the job is then told only
    // once it is kept: otherwise a restarted scheduler would wait for workers that have left.
    bool keeps_state = false;
    Timeouts timeouts = {};
    // URL of the status page; empty if there is none.
    std::string page = {};
    // `after_record` of EventLog: true if EventsRecorded() is called after each TakeEvents().
    bool tells_after_record = false;
    bool unwatched = false;  // true if no supervisor polls for the result: the scheduler exits without waiting
  };

  Controller(const Config& config, const TimeSource& time, ServerCalls& servers);

  // Handle the requests of scheduler.proto, which describes them. Besides the codes there:
  //   kFailedPrecondition  the request names another job, or an incarnation that is no longer a member
  //   kUnavailable         too early: ask again
  absl::StatusOr<wire::RegisterServerReply> RegisterServer(const wire::RegisterServerRequest& request);
  absl::StatusOr<wire::RegisterWorkerReply> RegisterWorker(const wire::RegisterWorkerRequest& request);
  absl::StatusOr<wire::HeartbeatReply> Heartbeat(const wire::HeartbeatRequest& request);
  absl::StatusOr<wire::FindImagesReply> FindImages(const wire::FindImagesRequest& request);
  absl::StatusOr<wire::GetShardMapReply> GetShardMap(const wire::GetShardMapRequest& request);
  absl::StatusOr<wire::NextTaskReply> NextTask(const wire::NextTaskRequest& request);
  absl::Status ReportEvaluation(const wire::EvaluationReport& request);
  // Notes a test accuracy that no worker was asked for, of the present weights, with `samples_applied` samples applied.
  void NoteObserved(wire::EvaluationReport report, uint64_t samples_applied);
  wire::GetStatusReply GetStatus();
  // Returns all that the controller knows of what the status page shows: no curve, events, alerts, disk or kept
  // checkpoints. A call does not count as somebody asking how the job has ended.
  wire::JobStatus View() const;
  absl::StatusOr<wire::CheckpointReply> Checkpoint(const wire::CheckpointRequest& request);
  absl::StatusOr<wire::ChangeServersReply> ChangeServers(const wire::ChangeServersRequest& request);
  absl::Status ReportExit(const wire::ReportExitRequest& request);
  // Ends the job. A job that has ended already keeps its outcome.
  void StopJob(const std::string& reason, bool failed);
  // Ends the job because the scheduler must exit. If it has ended already, stops waiting for somebody to ask how.
  void Dismiss(const std::string& reason);

  void Installed(ServerRef server, const wire::InstallShardsReply& reply) override;
  void MembersInstalled(ServerRef server, const wire::SetMembersReply& reply) override;
  void Stopped(ServerRef server) override;
  void CheckpointBegun(ServerRef server, const wire::BeginCheckpointRequest& request,
                       const absl::StatusOr<wire::BeginCheckpointReply>& reply) override;
  void TakeRefused(ServerRef server, const wire::TakeShardsRequest& request, const absl::Status& status) override;
  void Refused(ServerRef server, const absl::Status& status) override;

  // Finds members that are silent, work that is late, and whatever is over. Call every T/2 or more often.
  void Tick();

  // True once the job has ended, all members have left or had enough time to leave, and somebody has asked how it
  // ended. Nobody is awaited for more than 5 s, and not at all if the config says `unwatched`.
  bool finished() const;
  wire::JobState state() const;
  // True if the job was stopped and its servers' own snapshots are newer than the last checkpoint: with the saved
  // state, a restarted scheduler continues from them.
  bool StoppedUnsaved() const;

  // Returns the state that a restarted scheduler needs to continue from here.
  state::Scheduler Save(absl::Time wall_time) const;
  // Notes that `state` would survive the process.
  void StateKept(const state::Scheduler& state);
  // Continues from `state`: calls all servers, and waits to hear from everybody. Requires: a controller as constructed.
  //   kFailedPrecondition  the state is of another job
  //   kDataLoss            the state makes no sense
  absl::Status Restore(const state::Scheduler& state, absl::Time wall_time);

  // Continues a run from a checkpoint, with other servers and workers. Requires: a controller as constructed.
  //   kFailedPrecondition  the checkpoint leaves nothing to train, has another seed, or more epochs than the job
  //   kDataLoss            the manifest makes no sense
  absl::Status GoOnFrom(const checkpoint::Manifest& manifest, const std::string& folder);
  // Returns the checkpoint whose files are all written. The caller names its folder and calls CheckpointCommitted().
  std::optional<checkpoint::Manifest> CheckpointToCommit() const;
  // Returns the number of the last checkpoint that failed; 0 for none.
  uint64_t CheckpointThatFailed() const;
  // Returns the folder of the checkpoint that the run began with; empty for none.
  std::string GoesOnFrom() const;
  // `folder`: the named folder of the checkpoint, or why there is none. Requires: CheckpointToCommit() has a value.
  void CheckpointCommitted(const absl::StatusOr<std::string>& folder);

  // Returns the reports since the previous call, oldest first; TakeEvents() does so for the events.
  std::vector<Report> TakeReports();
  // Returns all rows of epochs.csv if there is something new.
  std::optional<std::vector<EpochFigures>> TakeEpochs();
  std::deque<std::string> TakeEvents();
  void EventsRecorded();
  void AddEvent(const std::string& event);
  // True if TakeEvents() would return some.
  bool HasEvents() const;
  // Returns the figures of the run up to now.
  RunSummary Summary();
  // Returns the members now; ScrapeTargets() returns the metrics endpoints of those that are present, sorted.
  MembersView Members() const;
  std::vector<ScrapeTarget> ScrapeTargets() const;

 private:
  // --- controller.cc: requests ---
  absl::Status CheckJob(uint64_t job) const;
  void NoteProtocol(const std::string& who, const ProtocolVersion& theirs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckFingerprint(const std::string& who, uint64_t fingerprint) const;
  // Returns an error while a server of this name lives, or may soon be found dead.
  absl::Status CheckNoNamesake(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LearnModel(const wire::RegisterWorkerRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notes a sign of life of a worker, and its progress (null for none).
  //   kFailedPrecondition  the worker is no longer a member
  absl::Status HearWorker(const Holder& holder, const wire::WorkerProgress* progress, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reports when a worker begins to wait for something that no process of the job can give, and when it continues.
  void HearWait(const Holder& holder, const wire::WorkerProgress& progress, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the number of samples in each batch of the worker's next range.
  uint32_t BatchSizeFor(WorkerId worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True unless a worker that could do its work is known to be much faster.
  bool Swift(WorkerId worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Trains(const Membership::Worker& worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<wire::HeartbeatReply> WorkerHeartbeat(const wire::HeartbeatRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<wire::HeartbeatReply> ServerHeartbeat(const wire::HeartbeatRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  wire::NextTaskReply Hand(const Holder& holder, const Work& work, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True once all shards are seeded. Until then each live worker sends initial weights: a death leaves nobody waiting.
  bool AllSeeded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_workers.cc: workers come, and are forgotten ---
  // Returns the worker whose place this process takes, if any: its own earlier life, or a silent worker of its name.
  //   kUnavailable    a worker of this name may be alive: ask again
  //   kAlreadyExists  a worker of this name is alive
  absl::StatusOr<std::optional<WorkerId>> PreviousOf(const wire::RegisterWorkerRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetDeparted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_evaluations.cc ---
  // Records an evaluation, and decides whether it is the best so far and whether training is to end.
  void NoteEvaluation(const wire::EvaluationReport& report, const EvaluationSummary& begun, const std::string& by)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_run.cc: what follows ---
  void Apply(const MembershipActions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Act(const SendMembersAction& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Act(const WorkerLiveAction& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Act(const WorkerFencedAction& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Act(const WorkerDeadAction& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Act(const ServerDeadAction& action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notes what a server that came back has lost.
  void Restored(ServerId server, const wire::InstallShardsReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notes that this worker makes no more steps in this life, and reports what it will not report itself.
  void TrainsNoMore(const Holder& holder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddLossEvent(const Holder& holder, uint64_t lost, absl::string_view when) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the work of a worker that trains no more, for whatever reason.
  void WorkerGone(const Holder& holder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellShares(const std::map<ServerId, double>& shares) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the servers their shards once they and the model are known.
  void Place() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendInstall(ServerId server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if the server's shards are on disk and training can wait for the server.
  bool MayComeBack(ServerId server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells people that all servers may come back, once they may.
  void AnnounceDurable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailIfServersStayAway(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginIfReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(wire::JobState state, const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True once the job's end is durable, or can no longer be made durable: others may know of it.
  bool Parting(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Continues to dismiss the members after the end.
  void PartTick(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllWorkersGone(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllServersGone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AllServersThere() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Excuses what looks like silence because this process itself was stopped, or got no processor.
  void ForgiveOwnSleep(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpelStalled(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailIfDeserted(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailIfNoRoom(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns "worker w-2", or what else Called() makes of the name.
  std::string NameOf(WorkerId worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_servers.cc: servers come, go, and give and take shards ---
  bool Replicated() const { return HasBackups(config_.job); }
  JobFacts Facts() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return {time_.Now(), state_, exit_audience_}; }
  // Server processes without shards of their own: backups, or those that wait for shards.
  SpareServers& Spares() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return Replicated() ? backups_.all() : moves_.joining();
  }
  const SpareServers& Spares() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return Replicated() ? backups_.all() : moves_.joining();
  }
  bool IsSpare(ServerRef server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Registers a process that is to be a spare. kNotFound: it is something else.
  absl::StatusOr<ServerRef> RegisterSpare(const wire::RegisterServerRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<wire::HeartbeatReply> SpareHeartbeat(const wire::HeartbeatRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropSpare(ServerId server, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves::Owner
  void ShardsChanged(ServerId server, const MembershipActions& actions) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GotShards(ServerId server, ServerId from) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ServerLeft(ServerId server, const MembershipActions& actions) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_checkpoint.cc ---
  absl::Status CanCheckpoint() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Checkpoints::Facts CheckpointFacts(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins a checkpoint that is due, and continues one that was begun.
  void WatchCheckpoints(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginCheckpoint(const std::string& reason, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendCheckpointCall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the last checkpoint, if one is wanted. True while the servers must stay for it.
  bool AwaitsLastCheckpoint(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the number of the checkpoint whose outcome the server need not report again; 0 for none.
  uint64_t HearCheckpoint(ServerId server, const wire::CheckpointProgress& progress)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_status.cc: what people see ---
  // Returns what the job waits for while it starts; empty for nothing.
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Does what is due at what is trained now. Reports epochs that are over; of many short ones, only one now and then.
  void FollowTraining(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddReport(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double ElapsedSeconds(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the samples trained, of all epochs; runs backwards only for ranges that are given out again.
  uint64_t SamplesDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the figures of an evaluation that begins now.
  EvaluationSummary StandingAt(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the time until all is trained, at the speed of the latest minutes; nullopt if it cannot be told.
  std::optional<double> SecondsLeft(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  // Updates how fast the versions of a server's shards rise.
  void HearVersions(ServerId server, const wire::ServerProgress& progress, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_watch.cc: what the scheduler makes of how training goes ---
  void WatchDivergence() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns what is left of a run that diverges: "the last evaluation ...; no checkpoint was made".
  std::string LastGoodState() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchBound(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reports when a server begins to fail to write snapshots, and when it writes them again.
  void HearSnapshots(ServerId id, const wire::ServerProgress& now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Warns once if shards are not on disk long after training began.
  void WatchSnapshots(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells people and servers of the change, if there is one.
  void ChangeBound(const std::optional<StalenessBound::Change>& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_state.cc: what outlives the scheduler ---
  state::Scheduler SaveLocked(absl::Time wall_time) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RestoreServers(const state::Members& members, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the workers that must be fenced before others get their work.
  std::vector<std::pair<WorkerId, Incarnation>> Holders() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_members.cc ---
  void NoteServerMetrics(const wire::RegisterServerRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SaveMetrics(state::Scheduler& state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RestoreMetrics(const state::Scheduler& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- controller_summary.cc ---
  // Returns a summary for each name, in the order in which the names were first heard of.
  std::vector<WorkerSummary> SummariseWorkers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Config config_;
  const TimeSource& time_;
  ServerCalls& servers_;

  mutable absl::Mutex mutex_;
  // A hundred nodes that ask for images must not hold up heartbeats.
  absl::Mutex images_mutex_;
  ImageDirectory images_ ABSL_GUARDED_BY(images_mutex_);

  // The job.
  wire::JobState state_ ABSL_GUARDED_BY(mutex_) = wire::JOB_STARTING;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  const absl::Time created_;
  absl::Time began_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();    // training began
  absl::Time trained_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // final evaluation began: all is trained
  absl::Time ended_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Time stopping_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // servers were told to stop
  bool status_seen_ ABSL_GUARDED_BY(mutex_) = false;                      // status asked for since then
  bool finished_ ABSL_GUARDED_BY(mutex_) = false, end_kept_ ABSL_GUARDED_BY(mutex_) = false;

  // The members.
  Membership membership_ ABSL_GUARDED_BY(mutex_);
  ShardDirectory shards_ ABSL_GUARDED_BY(mutex_);
  // Metrics endpoints of servers and backups, by name.
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
  // Servers whose shards have all been on disk.
  std::set<ServerId> durable_ ABSL_GUARDED_BY(mutex_);
  bool warned_not_durable_ ABSL_GUARDED_BY(mutex_) = false;
  // Servers that died in the middle of training and whose shards are not back yet.
  std::map<ServerId, absl::Time> lost_since_ ABSL_GUARDED_BY(mutex_);
  std::set<ServerId> stopped_ ABSL_GUARDED_BY(mutex_);

  std::set<Holder> told_to_leave_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_tick_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::optional<absl::Time> deserted_since_ ABSL_GUARDED_BY(mutex_);
  uint64_t worker_deaths_ ABSL_GUARDED_BY(mutex_) = 0;
  // Reasons of processes that ended before they registered, by name, for the message when the start fails.
  std::map<std::string, std::string> early_exits_ ABSL_GUARDED_BY(mutex_);

  // The model: known from the first worker on; placed once the servers are there.
  std::optional<wire::RegisterWorkerRequest> first_worker_ ABSL_GUARDED_BY(mutex_);

  // The work; absent until the first worker has said how much data there is.
  std::optional<Tasks> tasks_ ABSL_GUARDED_BY(mutex_);
  std::map<Holder, EvaluationSummary> measured_ ABSL_GUARDED_BY(mutex_);  // standing when an evaluation was handed out
  std::map<Holder, absl::Time> work_since_ ABSL_GUARDED_BY(mutex_);
  StallWatch stalls_ ABSL_GUARDED_BY(mutex_){config_.timeouts};
  RoomWait room_ ABSL_GUARDED_BY(mutex_){absl::Seconds(config_.job.checkpoint().timeout_s())};

  // Speeds of the workers, and their batch sizes with training.batch balance.
  BatchSizes batch_sizes_ ABSL_GUARDED_BY(mutex_);

  TrainingWatch watch_ ABSL_GUARDED_BY(mutex_);

  // Folder of the checkpoint that the run began with; empty for none.
  std::string goes_on_from_ ABSL_GUARDED_BY(mutex_);
  uint64_t data_kept_ ABSL_GUARDED_BY(mutex_) = 0;         // fingerprint of its data; 0: not checked
  absl::Duration elapsed_before_ ABSL_GUARDED_BY(mutex_);  // time trained before it

  // Figures and events for people.
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  EventLog events_ ABSL_GUARDED_BY(mutex_);
  Checkpoints checkpoints_ ABSL_GUARDED_BY(mutex_);
  Backups backups_ ABSL_GUARDED_BY(mutex_);
  Moves moves_ ABSL_GUARDED_BY(mutex_);
  Audience exit_audience_ ABSL_GUARDED_BY(mutex_) = Audience::kPeople;  // audience of deaths that ReportExit() reports
  absl::Time epoch_told_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  Evaluations evaluations_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_report_ ABSL_GUARDED_BY(mutex_);
  std::vector<Report> reports_ ABSL_GUARDED_BY(mutex_);
  EpochBook epoch_book_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::scheduler
