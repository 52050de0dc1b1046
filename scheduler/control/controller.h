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
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "checkpoint.pb.h"
#include "common/clock.h"
#include "common/protocol_version.h"
#include "scheduler.pb.h"
#include "scheduler/base/members_view.h"
#include "scheduler/base/report.h"
#include "scheduler/base/server_calls.h"
#include "scheduler/control/job_course.h"
#include "scheduler/control/running_job.h"
#include "scheduler/record/run_summary.h"
#include "scheduler/work/image_directory.h"
#include "scheduler_state.pb.h"
#include "status.pb.h"

namespace slackline::scheduler {

class Controller : public ServerObserver {
 public:
  using Config = JobConfig;

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
  absl::Status CheckJob(uint64_t job) const;
  void NoteProtocol(const std::string& who, const ProtocolVersion& theirs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckFingerprint(const std::string& who, uint64_t fingerprint) const;
  // Returns an error while a server of this name lives, or may soon be found dead.
  absl::Status CheckNoNamesake(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LearnModel(const wire::RegisterWorkerRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<wire::HeartbeatReply> WorkerHeartbeat(const wire::HeartbeatRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<wire::HeartbeatReply> ServerHeartbeat(const wire::HeartbeatRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<wire::HeartbeatReply> SpareHeartbeat(const wire::HeartbeatRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  wire::NextTaskReply Hand(const Holder& holder, const Work& work, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the worker whose place this process takes, if any: its own earlier life, or a silent worker of its name.
  //   kUnavailable    a worker of this name may be alive: ask again
  //   kAlreadyExists  a worker of this name is alive
  absl::StatusOr<std::optional<WorkerId>> PreviousOf(const wire::RegisterWorkerRequest& request, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RestoreServers(const state::Members& members, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RestoreMetrics(const state::Scheduler& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Config config_;
  const TimeSource& time_;

  mutable absl::Mutex mutex_;
  // A hundred nodes that ask for images must not hold up heartbeats.
  absl::Mutex images_mutex_;
  ImageDirectory images_ ABSL_GUARDED_BY(images_mutex_);
  // The course is made first, because the job takes it as the owner of its moves.
  JobCourse course_ ABSL_GUARDED_BY(mutex_);
  RunningJob job_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::scheduler
