// JobCourse: changes a job as its members, their reports and the time demand: placement, start, deaths, stalls,
// checkpoints, the end.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "scheduler.pb.h"
#include "scheduler/control/running_job.h"

namespace slackline::scheduler {

// Thread-safety: none; the controller calls it under its lock.
// Ownership:     borrows the job.
class JobCourse : public Moves::Owner {
 public:
  explicit JobCourse(RunningJob& job) : job_(job) {}

  // Finds members that are silent, work that is late, and whatever is over. Call every T/2 or more often.
  void Tick();
  void Apply(const MembershipActions& actions);
  // Ends the work of a worker that trains no more, for whatever reason.
  void WorkerGone(const Holder& holder);
  // Gives the servers their shards once they and the model are known.
  void Place();
  void SendInstall(ServerId server);
  // Notes what a server that came back has lost.
  void Restored(ServerId server, const wire::InstallShardsReply& reply);
  // Notes that this worker makes no more steps in this life, and reports what it will not report itself.
  void TrainsNoMore(const Holder& holder);
  void BeginIfReady();
  // Tells people that all servers may come back, once they may.
  void AnnounceDurable();
  void End(wire::JobState state, const std::string& reason);
  // Registers a process that is to be a spare. kNotFound: it is something else.
  absl::StatusOr<ServerRef> RegisterSpare(const wire::RegisterServerRequest& request);
  void DropSpare(ServerId server, const std::string& why);
  // Records an evaluation, and decides whether it is the best so far and whether training is to end.
  void NoteEvaluation(const wire::EvaluationReport& report, const EvaluationSummary& begun, const std::string& by);
  // Reports when a server begins to fail to write snapshots, and when it writes them again.
  void HearSnapshots(ServerId id, const wire::ServerProgress& now);
  // Does what is due at what is trained now. Reports epochs that are over; of many short ones, only one now and then.
  void FollowTraining(absl::Time now);
  void AddReport(absl::Time now);
  // Updates how fast the versions of a server's shards rise.
  void HearVersions(ServerId server, const wire::ServerProgress& progress, absl::Time now);
  void NoteServerMetrics(const wire::RegisterServerRequest& request);
  absl::Status CanCheckpoint() const;
  Checkpoints::Facts CheckpointFacts(absl::Time now) const;
  void BeginCheckpoint(const std::string& reason, absl::Time now);
  void SendCheckpointCall();
  // Returns the number of the checkpoint whose outcome the server need not report again; 0 for none.
  uint64_t HearCheckpoint(ServerId server, const wire::CheckpointProgress& progress);
  // Notes a sign of life of a worker, and its progress (null for none).
  //   kFailedPrecondition  the worker is no longer a member
  absl::Status HearWorker(const Holder& holder, const wire::WorkerProgress* progress, absl::Time now);

  // Moves::Owner
  void ShardsChanged(ServerId server, const MembershipActions& actions) override;
  void GotShards(ServerId server, ServerId from) override;
  void ServerLeft(ServerId server, const MembershipActions& actions) override;

 private:
  void Act(const SendMembersAction& action);
  void Act(const WorkerLiveAction& action);
  void Act(const WorkerFencedAction& action);
  void Act(const WorkerDeadAction& action);
  void Act(const ServerDeadAction& action);
  void FailIfServersStayAway(absl::Time now);
  void TellShares(const std::map<ServerId, double>& shares);
  void AddLossEvent(const Holder& holder, uint64_t lost, absl::string_view when);
  // Excuses what looks like silence because this process itself was stopped, or got no processor.
  void ForgiveOwnSleep(absl::Time now);
  void ExpelStalled(absl::Time now);
  void FailIfDeserted(absl::Time now);
  bool AllWorkersGone(absl::Time now) const;
  bool AllServersGone() const;
  // Continues to dismiss the members after the end.
  void PartTick(absl::Time now);
  void ForgetDeparted();
  void WatchDivergence();
  // Warns once if shards are not on disk long after training began.
  void WatchSnapshots(absl::Time now);
  // Reports when a worker begins to wait for something that no process of the job can give, and when it continues.
  void HearWait(const Holder& holder, const wire::WorkerProgress& progress, absl::Time now);
  void FailIfNoRoom(absl::Time now);
  void WatchBound(absl::Time now);
  // Tells people and servers of the change, if there is one.
  void ChangeBound(const std::optional<StalenessBound::Change>& change);
  // Begins a checkpoint that is due, and continues one that was begun.
  void WatchCheckpoints(absl::Time now);
  // Makes the last checkpoint, if one is wanted. True while the servers must stay for it.
  bool AwaitsLastCheckpoint(absl::Time now);

  RunningJob& job_;
};

}  // namespace slackline::scheduler
