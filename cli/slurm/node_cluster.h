// The processes of a run that an allocation of several nodes has: the scheduler here, the others wherever the plan
// says.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/cluster.h"
#include "cli/run_processes.h"
#include "cli/slurm/meeting.h"

namespace slackline::cli::slurm {

// Where a server has died and does not come back on its node, it is given to another node: the node is lost. A worker
// goes with its node.
//
// Thread-safety: none.
// Ownership:     borrows what it is given, but not the job and the nodes.
class NodeCluster : public RunProcesses {
 public:
  // `scheduler`: a Cluster of the scheduler alone. `launcher`: the srun that has started `slackline slurm node` on the
  // nodes. `nodes` and `roles`: who is there, and who is to do what. `script`: as Share has it.
  NodeCluster(job::Job job, Cluster& scheduler, const Meeting& meeting, Process& launcher,
              std::vector<scheduler::Node> nodes, std::vector<scheduler::NodeRoles> roles,
              std::vector<std::string> script, Pulse& pulse, SignalQueue& signals);

  absl::Status Start() override;
  bool has_scheduler() const override { return scheduler_.has_scheduler(); }
  SchedulerClient& scheduler() override { return scheduler_.scheduler(); }
  bool scheduler_runs() override { return scheduler_.scheduler_runs(); }
  void Heard(bool scheduler_answered) override { scheduler_.Heard(scheduler_answered); }
  News Watch(const wire::GetStatusReply& status) override;
  void StillHere() override { pulse_.StillHere(); }
  std::vector<std::string> Stop(const Crew::StopDeadlines& deadlines) override;

 private:
  absl::Status Publish();
  void WatchNodes(const wire::GetStatusReply& status, News& news);
  // Servers whose node is lost, and those that were added, get a node.
  void Replace(const wire::MemberStatus& server, News& news);
  void PlaceAdded(const wire::GetStatusReply& status, News& news);
  void Place(const std::string& server, const std::string& why, News& news);

  const job::Job job_;
  Cluster& scheduler_;
  const Meeting& meeting_;
  Process& launcher_;
  const std::vector<scheduler::Node> nodes_;
  Pulse& pulse_;
  SignalQueue& signals_;
  Plan plan_;
  absl::Time look_ = absl::InfinitePast();
  std::vector<std::string> names_;  // of the nodes
  // Servers that are dead: which incarnation, since when, and that a node was found for it.
  struct Death {
    uint64_t incarnation = 0;
    absl::Time since;
    bool placed = false;
  };
  std::map<std::string, Death> deaths_;
  std::vector<std::string> lost_;
  uint32_t replaced_ = 0;
  uint32_t added_ = 0;
  absl::Time workers_seen_ = absl::InfiniteFuture();
};

}  // namespace slackline::cli::slurm
