// The scheduler without its network code, and the lock of its job.
//
// A job is STARTING until all servers have their shards and cluster.workers workers are live. Then it is TRAINING, and
// at last DONE, FAILED or STOPPED. After the end the workers are told to leave, then the servers to stop; then
// finished() is true.
//
// Each function takes the lock and passes the call on: MemberRequests answers servers and workers, JobCourse does what
// follows for the other members, TickJob() does what time demands, RestoreState() continues a run.
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
#include "common/time/clock.h"
#include "scheduler.pb.h"
#include "scheduler/base/members_view.h"
#include "scheduler/base/report.h"
#include "scheduler/base/server_calls.h"
#include "scheduler/control/job_course.h"
#include "scheduler/control/member_requests.h"
#include "scheduler/control/running_job.h"
#include "scheduler/record/run_summary.h"
#include "scheduler/work/image_directory.h"
#include "scheduler_state.pb.h"
#include "status.pb.h"

namespace slackline::scheduler {

// Work that is due in the folder of the checkpoints.
struct CheckpointDuty {
  // Checkpoint whose files are all written. The caller names its folder and calls CheckpointCommitted().
  std::optional<checkpoint::Manifest> to_commit;
  uint64_t failed = 0;       // number of the last checkpoint that failed; 0 for none
  std::string goes_on_from;  // folder of the checkpoint that the run began with; empty for none
};

class Controller : public ServerObserver {
 public:
  using Config = JobConfig;

  Controller(const Config& config, const TimeSource& time, ServerCalls& servers);

  // --- Requests of members ---
  // Handle the requests of scheduler.proto, which describes them. Besides the codes there:
  //   kFailedPrecondition  the request names another job, or an incarnation that is no longer a member
  //   kUnavailable         too early: ask again
  absl::StatusOr<wire::RegisterServerReply> RegisterServer(const wire::RegisterServerRequest& request);
  absl::StatusOr<wire::RegisterWorkerReply> RegisterWorker(const wire::RegisterWorkerRequest& request);
  absl::StatusOr<wire::HeartbeatReply> Heartbeat(const wire::HeartbeatRequest& request);
  absl::StatusOr<wire::GetShardMapReply> GetShardMap(const wire::GetShardMapRequest& request);
  absl::StatusOr<wire::NextTaskReply> NextTask(const wire::NextTaskRequest& request);
  absl::StatusOr<wire::LeasePartsReply> LeaseParts(const wire::LeasePartsRequest& request);
  absl::Status ReportEvaluation(const wire::EvaluationReport& request);
  absl::Status ReportExit(const wire::ReportExitRequest& request);
  absl::StatusOr<wire::FindImagesReply> FindImages(const wire::FindImagesRequest& request);

  // --- Requests of people and programs ---
  wire::GetStatusReply GetStatus();
  absl::StatusOr<wire::CheckpointReply> Checkpoint(const wire::CheckpointRequest& request);
  absl::StatusOr<wire::ChangeServersReply> ChangeServers(const wire::ChangeServersRequest& request);
  // Ends the job. A job that has ended already keeps its outcome.
  void StopJob(const std::string& reason, bool failed);
  // Ends the job because the scheduler must exit. If it has ended already, stops waiting for somebody to ask how.
  void Dismiss(const std::string& reason);
  // Notes a test accuracy that no worker was asked for, of the present weights, with `samples_applied` samples applied.
  void NoteObserved(const wire::EvaluationReport& report, uint64_t samples_applied);

  // --- Outcomes of calls to servers ---
  void Installed(ServerRef server, const wire::InstallShardsReply& reply) override;
  void MembersInstalled(ServerRef server, const wire::SetMembersReply& reply) override;
  void Stopped(ServerRef server) override;
  void CheckpointBegun(ServerRef server, const wire::BeginCheckpointRequest& request,
                       const absl::StatusOr<wire::BeginCheckpointReply>& reply) override;
  void TakeRefused(ServerRef server, const wire::TakeShardsRequest& request, const absl::Status& status) override;
  void Refused(ServerRef server, const absl::Status& status) override;

  // --- Time ---
  // Finds members that are silent, work that is late, and whatever is over. Call every T/2 or more often.
  void Tick();
  // True once the job has ended, all members have left or had enough time to leave, and somebody has asked how it
  // ended. Nobody is awaited for more than 5 s, and not at all if the config says `unwatched`.
  bool finished() const;
  wire::JobState state() const;
  // True if the job was stopped and its servers' own snapshots are newer than the last checkpoint: with the saved
  // state, a restarted scheduler continues from them.
  bool StoppedUnsaved() const;

  // --- State that outlives the process ---
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
  CheckpointDuty DueOnDisk() const;
  // `folder`: the named folder of the checkpoint, or why there is none. Requires: DueOnDisk() has one to commit.
  void CheckpointCommitted(const absl::StatusOr<std::string>& folder);

  // --- Record of the run ---
  // Returns the reports since the previous call, oldest first; TakeEvents() does so for the events.
  std::vector<Report> TakeReports();
  // Returns all rows of epochs.csv if there is something new.
  std::optional<std::vector<EpochFigures>> TakeEpochs();
  // Returns the samples of power since the previous call; none before training begins.
  std::vector<PowerRow> TakePower();
  std::deque<std::string> TakeEvents();
  void EventsRecorded();
  void AddEvent(const std::string& event);
  // Returns what the status page shows; see MakePage().
  wire::JobStatus View() const;
  // Returns the figures of the run up to now.
  RunSummary Summary() const;
  MembersView Members() const;

 private:
  const Config config_;
  const TimeSource& time_;

  mutable absl::Mutex mutex_;
  // A hundred nodes that ask for images must not hold up heartbeats.
  absl::Mutex images_mutex_;
  ImageDirectory images_ ABSL_GUARDED_BY(images_mutex_);
  // The course is made first, because the job takes it as the owner of its moves.
  JobCourse course_ ABSL_GUARDED_BY(mutex_);
  RunningJob job_ ABSL_GUARDED_BY(mutex_);
  MemberRequests members_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::scheduler
