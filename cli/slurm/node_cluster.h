// Processes of a run on the nodes of an allocation: the scheduler on this node, the others where the plan puts them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/run/cluster.h"
#include "cli/run/run_processes.h"
#include "cli/slurm/meeting.h"

namespace slackline::cli::slurm {

// Starts and watches the processes of an allocation. If a server dies and does not come back on its node, the node
// counts as lost, and another node gets the server. A worker is lost with its node.
//
// Thread-safety: none.
// Ownership:     borrows all references.
class NodeCluster : public RunProcesses {
 public:
  // `scheduler` is a Cluster of the scheduler alone. `launcher` is the srun that has started `slackline slurm node` on
  // the nodes. `nodes` are the nodes that have started, `roles` their processes. `script` as in Share::script.
  NodeCluster(job::Job job, Cluster& scheduler, const Meeting& meeting, Process& launcher, std::vector<Node> nodes,
              std::vector<NodeRoles> roles, std::vector<std::string> script, Pulse& pulse, SignalQueue& signals);

  absl::Status Start() override;
  bool has_scheduler() const override { return scheduler_.has_scheduler(); }
  SchedulerClient& scheduler() override { return scheduler_.scheduler(); }
  std::string SchedulerCrash() override { return scheduler_.SchedulerCrash(); }
  bool scheduler_runs() override { return scheduler_.scheduler_runs(); }
  void Heard(bool scheduler_answered) override { scheduler_.Heard(scheduler_answered); }
  News Watch(const wire::GetStatusReply& status) override;
  void StillHere() override { pulse_.StillHere(); }
  std::vector<std::string> Stop(const Crew::StopDeadlines& deadlines) override;

 private:
  absl::Status Publish();
  void WatchNodes(const wire::GetStatusReply& status, News& news);
  // Give a node to servers whose node is lost (Replace), and to servers that were added (PlaceAdded).
  void Replace(const wire::MemberStatus& server, News& news);
  void PlaceAdded(const wire::GetStatusReply& status, News& news);
  void Place(const std::string& server, const std::string& why, News& news);

  const job::Job job_;
  Cluster& scheduler_;
  const Meeting& meeting_;
  Process& launcher_;
  const std::vector<Node> nodes_;
  Pulse& pulse_;
  SignalQueue& signals_;
  Plan plan_;
  absl::Time look_ = absl::InfinitePast();
  std::vector<std::string> names_;  // names of nodes_
  // Death of a server: its incarnation, the time since which it is dead, and whether a new node was sought for it.
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
