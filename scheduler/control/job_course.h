// JobCourse: changes a job as its members come, live, die and leave: placement, start, deaths, the end.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler.pb.h"
#include "scheduler/control/running_job.h"

namespace slackline::scheduler {

// Thread-safety: none; the controller calls it under its lock.
// Ownership:     borrows the job.
class JobCourse : public Moves::Owner {
 public:
  explicit JobCourse(RunningJob& job) : job_(job) {}

  void Apply(const MembershipActions& actions);
  // Ends the work of a worker that trains no more, for whatever reason.
  void WorkerGone(const Holder& holder);
  // Takes the model and the amount of data from the first worker that registers.
  //   kInvalidArgument  they make no sense, or a later worker has others
  absl::Status LearnModel(const wire::RegisterWorkerRequest& request);
  // Gives the servers their shards once they and the model are known.
  void Place();
  void SendInstall(ServerId server);
  // Tells people that all servers may come back, once they may.
  void AnnounceDurable();
  void End(wire::JobState state, const std::string& reason);
  // Registers a process that is to be a spare. kNotFound: it is something else.
  absl::StatusOr<ServerRef> RegisterSpare(const wire::RegisterServerRequest& request);
  void DropSpare(ServerId server, const std::string& why);

  // Do what follows from the outcome of a call to a server; ServerObserver describes the outcomes.
  void Installed(ServerRef server, const wire::InstallShardsReply& reply);
  void MembersInstalled(ServerRef server, const wire::SetMembersReply& reply);
  void Stopped(ServerRef server);
  void Refused(ServerRef server, const absl::Status& status);

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
  // Takes the optimizer of scripts from the first worker of a run that continues; later ones must give the same.
  absl::Status LearnOptimizer(const wire::RegisterWorkerRequest& request);
  void TellShares(const std::map<ServerId, double>& shares);
  void BeginIfReady();

  RunningJob& job_;
};

}  // namespace slackline::scheduler
