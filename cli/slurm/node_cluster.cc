#include "cli/slurm/node_cluster.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/time/clock.h"

namespace slackline::cli::slurm {
namespace {

// Between two looks at what the nodes have written.
constexpr absl::Duration kLookEvery = absl::Seconds(1);
// In less a node starts its server again, if the node is there.
constexpr absl::Duration kNodeLostAfter = absl::Seconds(20);
// For the tasks of the step to end after their processes have.
constexpr absl::Duration kLauncherMax = absl::Seconds(10);

}  // namespace

NodeCluster::NodeCluster(job::Job job, Cluster& scheduler, const Meeting& meeting, Process& launcher,
                         std::vector<Node> nodes, std::vector<NodeRoles> roles, std::vector<std::string> script,
                         Pulse& pulse, SignalQueue& signals)
    : job_(std::move(job)),
      scheduler_(scheduler),
      meeting_(meeting),
      launcher_(launcher),
      nodes_(std::move(nodes)),
      pulse_(pulse),
      signals_(signals) {
  plan_.roles = std::move(roles);
  plan_.script = std::move(script);
  for (const Node& node : nodes_) names_.push_back(node.name);
}

absl::Status NodeCluster::Start() {
  if (absl::Status status = scheduler_.Start(); !status.ok()) return status;
  return Publish();
}

absl::Status NodeCluster::Publish() {
  ++plan_.number;
  return meeting_.WritePlan(plan_);
}

RunProcesses::News NodeCluster::Watch(const wire::GetStatusReply& status) {
  StillHere();
  News news = scheduler_.Watch(status);
  if (const std::optional<ProcessEnd> end = launcher_.Poll(); end && news.trouble.empty()) {
    news.trouble = absl::StrCat("srun has ended, ", end->Describe(), ", and no node is left; its last output:\n",
                                launcher_.LastWords());
    news.maybe_done = end->ok();
  }
  if (SteadyTime().Now() < look_) return news;
  look_ = SteadyTime().Now() + kLookEvery;
  WatchNodes(status, news);
  return news;
}

void NodeCluster::WatchNodes(const wire::GetStatusReply& status, News& news) {
  for (const auto& [node, reason] : meeting_.InTrouble(names_)) {
    if (news.trouble.empty()) news.trouble = absl::StrCat(node, ": ", reason);
  }
  if (status.state() != wire::JOB_TRAINING) return;
  bool workers = false;
  for (const wire::MemberStatus& member : status.members()) {
    const bool gone = member.state() == "dead" || member.state() == "left";
    if (member.role() == wire::MEMBER_ROLE_WORKER && !gone) workers = true;
    if (member.role() == wire::MEMBER_ROLE_SERVER) Replace(member, news);
  }
  PlaceAdded(status, news);
  const absl::Time now = SteadyTime().Now();
  if (workers || workers_seen_ == absl::InfiniteFuture()) workers_seen_ = now;
  const absl::Duration patience = absl::Milliseconds(job_.timeouts().startup_ms());
  if (now - workers_seen_ > patience && news.trouble.empty()) {
    news.trouble = absl::StrCat("no worker is left, for ", absl::FormatDuration(patience), " (timeouts.startup_ms)");
  }
}

void NodeCluster::Replace(const wire::MemberStatus& server, News& news) {
  const absl::Time now = SteadyTime().Now();
  if (server.state() != "dead") {
    deaths_.erase(server.name());
    return;
  }
  const auto [known, is_new] = deaths_.try_emplace(server.name(), Death{server.incarnation(), now});
  Death& death = known->second;
  if (death.incarnation != server.incarnation()) death = {server.incarnation(), now};
  if (death.placed || now - death.since < kNodeLostAfter) return;
  death.placed = true;
  for (NodeRoles& roles : plan_.roles) {
    if (std::erase(roles.servers, server.name()) == 0) continue;
    if (std::find(lost_.begin(), lost_.end(), roles.node) == lost_.end()) lost_.push_back(roles.node);
  }
  const uint32_t most = job_.cluster().server_restarts_max();
  if (replaced_ >= most) {
    news.lines.push_back(absl::StrCat(server.name(), " does not come back on its node, and gets no other: ", most,
                                      " restarts are used up (cluster.server_restarts_max)"));
    return;
  }
  ++replaced_;
  Place(server.name(), absl::StrCat("does not come back on ", lost_.empty() ? "its node" : lost_.back()), news);
}

void NodeCluster::PlaceAdded(const wire::GetStatusReply& status, News& news) {
  for (; added_ < status.servers_added(); ++added_) {
    Place(absl::StrCat("ps-", ServerProcesses(job_) + added_ + 1), "was added", news);
  }
}

void NodeCluster::Place(const std::string& server, const std::string& why, News& news) {
  const std::string node = NewPlaceFor(nodes_, plan_.roles, lost_);
  if (node.empty()) {
    news.lines.push_back(absl::StrCat(server, " ", why, ", and no node is left for it"));
    return;
  }
  for (NodeRoles& roles : plan_.roles) {
    if (roles.node == node) roles.servers.push_back(server);
  }
  const absl::Status published = Publish();
  news.lines.push_back(published.ok() ? absl::StrCat(server, " ", why, ": it is started on ", node)
                                      : absl::StrCat(server, " ", why, ": ", published.message()));
}

std::vector<std::string> NodeCluster::Stop(const Crew::StopDeadlines& deadlines) {
  std::vector<std::string> said;
  plan_.end_within = deadlines.leave;
  if (absl::Status status = Publish(); !status.ok()) said.push_back(std::string(status.message()));
  const absl::Time deadline = SteadyTime().Now() + deadlines.leave + 2 * deadlines.terminate + kLauncherMax;
  int signals_left = deadlines.impatient_at;
  while (!launcher_.Poll() && signals_left > 0 && SteadyTime().Now() < deadline) {
    const std::optional<int> signal = signals_.Wait(absl::Milliseconds(200));
    if (signal && IsStop(*signal)) --signals_left;
    StillHere();
  }
  if (!launcher_.Poll()) {
    said.push_back("the nodes have not ended in time: srun is killed");
    launcher_.Signal(SIGKILL);
    launcher_.WaitFor(kLauncherMax);
  }
  for (const std::string& line : scheduler_.Stop({.leave = absl::ZeroDuration(), .terminate = deadlines.terminate})) {
    said.push_back(line);
  }
  return said;
}

}  // namespace slackline::cli::slurm
