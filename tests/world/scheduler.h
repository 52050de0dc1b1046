// A scheduler process: the real Controller. Its loop (scheduler/service/run_loop.h) and its calls to servers
// (scheduler/service/server_links.h) are simulated in virtual time. Its saved state outlives it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/control/controller.h"
#include "tests/world/scene.h"

namespace slackline::world {

// Thread-safety: none.
// Ownership:     borrows the scene.
class SchedulerProcess : public Host, public scheduler::ServerCalls {
 public:
  // Continues from the state that was saved last, if there is any.
  SchedulerProcess(Scene& scene, std::string address);

  absl::StatusOr<wire::RegisterServerReply> RegisterServer(const wire::RegisterServerRequest& request);
  absl::StatusOr<wire::RegisterWorkerReply> RegisterWorker(const wire::RegisterWorkerRequest& request);
  absl::StatusOr<wire::HeartbeatReply> Heartbeat(const wire::HeartbeatRequest& request);
  absl::StatusOr<wire::GetShardMapReply> GetShardMap(const wire::GetShardMapRequest& request);
  absl::StatusOr<wire::NextTaskReply> NextTask(const wire::NextTaskRequest& request);
  absl::StatusOr<wire::EvaluationReply> ReportEvaluation(const wire::EvaluationReport& request);
  absl::StatusOr<wire::ReportExitReply> ReportExit(const wire::ReportExitRequest& request);
  absl::StatusOr<wire::ChangeServersReply> ChangeServers(const wire::ChangeServersRequest& request);

  // --- scheduler::ServerCalls ---
  void Connect(scheduler::ServerRef server, const std::string& name, const std::string& address,
               scheduler::ServerObserver& observer) override;
  void Disconnect(scheduler::ServerRef server) override;
  void Install(scheduler::ServerRef server, const wire::InstallShardsRequest& request) override;
  void SetMembers(scheduler::ServerRef server, const wire::SetMembersRequest& request) override;
  void TakeShards(scheduler::ServerRef server, const wire::TakeShardsRequest& request) override;
  void BeginCheckpoint(scheduler::ServerRef, const wire::BeginCheckpointRequest&) override {}
  void Stop(scheduler::ServerRef server, const wire::StopRequest& request) override;

  const scheduler::Controller& controller() const { return controller_; }
  wire::GetStatusReply Status() { return controller_.GetStatus(); }
  // Returns the incarnations of the servers and backups that it takes for alive.
  std::vector<Incarnation> servers() const;
  // Returns the life of the process that has this incarnation; 0: no process has it.
  std::function<LifeId(Incarnation)> life_of;

 private:
  struct Link {
    scheduler::ServerRef server;
    std::string address;
    scheduler::ServerObserver* observer = nullptr;
    bool installed = false;
    bool busy = false;
    bool closed = false;
    absl::Duration back_off;
    std::optional<wire::TakeShardsRequest> take;
    std::optional<wire::InstallShardsRequest> install;
    std::optional<wire::SetMembersRequest> members;
    std::optional<wire::StopRequest> stop;
  };
  using LinkPtr = std::shared_ptr<Link>;

  LinkPtr Find(scheduler::ServerRef server) const;
  void Kick(const LinkPtr& link);
  void TryNext(const LinkPtr& link);
  // Handles the end of an attempt; calls `answered` on success.
  void Tried(const LinkPtr& link, const absl::Status& status, const std::function<void()>& answered);
  void Tick();
  void Tell();

  Scene& scene_;
  std::map<std::pair<ServerId, Incarnation>, LinkPtr> links_;
  scheduler::Controller controller_;
  bool ended_ = false;
};

inline SchedulerProcess& SchedulerAt(Host& host) { return static_cast<SchedulerProcess&>(host); }

}  // namespace slackline::world
