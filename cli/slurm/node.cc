#include "cli/slurm/node.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/base/complain.h"
#include "cli/run/cluster.h"
#include "cli/slurm/allocation.h"
#include "cli/slurm/meeting.h"
#include "cli/slurm/slurm_programs.h"
#include "common/job/job_file.h"
#include "common/log/log_format.h"
#include "common/log/logging.h"
#include "common/log/output.h"
#include "common/network/interfaces.h"
#include "common/security/security.h"
#include "common/time/clock.h"

namespace slackline::cli::slurm {
namespace {

// Between two looks at the plan and at the processes; the end of a process wakes us at once.
constexpr absl::Duration kLook = absl::Milliseconds(500);
// Between two questions to the scheduler, for each node that asks: it answers so many a second.
constexpr absl::Duration kStatusShare = absl::Milliseconds(10);
constexpr absl::Duration kStatusEvery = absl::Seconds(1);
constexpr absl::Duration kStatusTimeout = absl::Seconds(2);
// A launcher that has not beaten in so many looks, one a second, is lost, with its node, if the scheduler does not
// answer either. The nodes act one after the other.
constexpr size_t kLauncherLost = 45;
constexpr size_t kOneAfterTheOther = 10;
// After SIGTERM, twice: SLURM says it again before it kills.
constexpr int kImpatientAt = 3;

std::string Machine() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id;
}

std::optional<NodeRoles> RolesOf(const Plan& plan, const std::string& node) {
  for (const NodeRoles& roles : plan.roles) {
    if (roles.node == node) return roles;
  }
  return std::nullopt;
}

// How many devices of the node's groups share its processors; 1 where there are no groups, or only GPUs.
uint32_t CpusOfGroups(const job::Worker& worker) {
  uint32_t cpus = 0;
  for (const job::WorkerGroup& group : worker.groups()) {
    cpus += static_cast<uint32_t>(std::count(group.devices().begin(), group.devices().end(), "cpu"));
  }
  return std::max(1u, cpus);
}

Share ShareOf(const NodeRoles& roles, const NodeFacts& facts, const job::Job& job,
              const std::vector<std::string>& script) {
  Share share;
  share.script = script;
  share.whole = share.scheduler = false;
  share.servers = roles.servers;
  share.workers = roles.workers;
  for (uint32_t group = 0; job.worker().groups_size() > 0 && group < roles.workers.size(); ++group) {
    share.groups[roles.workers[group]] = group;
  }
  share.server_arguments = ListenAt(facts.address, job.network());
  // SLURM signals all that runs in the job; what becomes of it is decided by the launcher.
  share.server_arguments.push_back("--supervised");
  if (!facts.node.topology.empty()) {
    share.server_arguments.insert(share.server_arguments.end(), {"--topology", facts.node.topology});
  }
  share.worker_arguments = share.server_arguments;
  // Where workers are bound, their cores say it.
  if (job.worker().threads() == 0 && !BindsCores(job.worker())) {
    const uint32_t taken = std::min<uint32_t>(facts.node.cpus - 1, static_cast<uint32_t>(roles.servers.size()));
    const uint32_t threads =
        std::max(1u, (facts.node.cpus - taken) / (CpusOfGroups(job.worker()) * job.worker().per_node()));
    share.worker_arguments.insert(share.worker_arguments.end(), {"--set", absl::StrCat("worker.threads=", threads)});
  }
  return share;
}

// One node.
//
// Thread-safety: none.
class NodeKeeper {
 public:
  NodeKeeper(const NodeOptions& options, Allocation allocation, NodeFacts facts, SignalQueue& signals)
      : options_(options),
        allocation_(std::move(allocation)),
        meeting_(options.meeting),
        facts_(std::move(facts)),
        signals_(signals),
        log_(meeting_.folder() / absl::StrCat(facts_.node.name, ".log"), std::ios::app) {}

  absl::Status Serve() {
    if (absl::Status status = meeting_.Arrive(facts_); !status.ok()) return status;
    if (absl::Status status = WaitForPlan(); !status.ok()) return status;
    const std::optional<NodeRoles> roles = RolesOf(plan_, facts_.node.name);
    if (plan_.end_within) return absl::OkStatus();
    if (!roles) return absl::AbortedError("the others have begun without this node: it came too late");
    const absl::StatusOr<RunFolder> folder = RunFolder::Join(meeting_.run_folder(), facts_.node.name);
    if (!folder.ok()) return folder.status();
    const absl::StatusOr<job::Job> job = ReadJobFile(folder->job_file(), {});
    if (!job.ok()) return job.status();
    if (job->output().log_format() == job::Output::JSON) {
      log::Initialise(facts_.node.name);
      log::WriteJson(job->name());
      json_ = true;
    }
    const absl::StatusOr<security::Security> security = security::Security::Open(*job, security::Role::kOperator);
    if (!security.ok()) return security.status();
    absl::StatusOr<Programs> programs = Programs::BesideThisProgram(*job);
    if (!programs.ok()) return programs.status();
    servers_.insert(roles->servers.begin(), roles->servers.end());
    Cluster cluster(*job, *std::move(programs), security->To(security::Role::kScheduler), *folder, /*checkpoint=*/"",
                    ShareOf(*roles, facts_, *job, plan_.script), signals_);
    const absl::Status started = cluster.Start();
    if (!started.ok()) return started;
    Keep(cluster);
    return absl::OkStatus();
  }

 private:
  absl::Status WaitForPlan() {
    const absl::Time deadline = SteadyTime().Now() + options_.patience;
    while (true) {
      if (std::optional<Plan> plan = meeting_.ReadPlan(); plan && plan->number > 0) {
        plan_ = *std::move(plan);
        return absl::OkStatus();
      }
      if (SteadyTime().Now() > deadline) {
        return absl::DeadlineExceededError(absl::StrCat("waited ", absl::FormatDuration(options_.patience), " for ",
                                                        (meeting_.folder() / "plan.json").string()));
      }
      // The launcher may be lost before there is a plan.
      WatchLauncher();
      Heed(signals_.Wait(kLook));
    }
  }

  // Among the nodes, in an order that all of them know.
  size_t Rank() const {
    size_t rank = 0;
    if (plan_.roles.empty()) {
      for (const auto& [name, facts] : meeting_.Arrived()) rank += name < facts_.node.name ? 1 : 0;
      return rank;
    }
    while (rank < plan_.roles.size() && plan_.roles[rank].node != facts_.node.name) ++rank;
    return rank;
  }

  // SLURM takes the node away, or ends the job; who launched us decides what becomes of the run.
  void Heed(std::optional<int> signal) {
    if (!signal || !IsStop(*signal) || leaving_) return;
    leaving_ = true;
    Say("SLURM has sent a signal to stop");
    if (absl::Status status = meeting_.Leave(facts_.node.name, "SLURM tells it to stop"); !status.ok()) {
      Say(std::string(status.message()));
    }
  }

  void Keep(Cluster& cluster) {
    wire::GetStatusReply status;
    absl::Time ask = absl::InfinitePast();
    while (true) {
      Heed(signals_.Wait(kLook));
      if (std::optional<Plan> plan = meeting_.ReadPlan(); plan && plan->number > plan_.number) {
        plan_ = *std::move(plan);
        Adopt(cluster);
      }
      if (plan_.end_within) break;
      WatchLauncher();
      if (SteadyTime().Now() >= ask) {
        if (absl::StatusOr<wire::GetStatusReply> answer = cluster.scheduler().GetStatus(kStatusTimeout); answer.ok()) {
          status = *std::move(answer);
          answered_ = true;
          cluster.Heard(true);
        } else {
          cluster.Heard(false);
        }
        ask = SteadyTime().Now() + std::max(kStatusEvery, kStatusShare * plan_.roles.size());
      }
      const RunProcesses::News news = cluster.Watch(status);
      for (const std::string& line : news.lines) Say(line);
      if (!news.trouble.empty() && !news.maybe_done) Complain(news.trouble);
    }
    for (const std::string& line :
         cluster.Stop({.leave = *plan_.end_within, .signal = SIGINT, .impatient_at = kImpatientAt}))
      Say(line);
  }

  // With `--no-kill` SLURM lets a job run on that has lost the node of its batch script, and with it the scheduler.
  // Looks are counted, and not time: a node that slept has missed nothing.
  void WatchLauncher() {
    const absl::Time now = SteadyTime().Now();
    if (now < look_at_launcher_ || !options_.requeue) return;
    look_at_launcher_ = now + kStatusEvery;
    const uint64_t beat = meeting_.LastBeat();
    silent_looks_ = beat != beat_ || leaving_ || answered_ ? 0 : silent_looks_ + 1;
    beat_ = beat;
    answered_ = false;
    if (silent_looks_ < kLauncherLost + Rank() * kOneAfterTheOther) return;
    silent_looks_ = 0;
    const absl::Status requeued = RequeueOnce(allocation_.name, allocation_.restarts,
                                              meeting_.folder() / absl::StrCat("requeue-", facts_.node.name, ".log"));
    Say(absl::StrCat("nothing was heard of the launcher, nor of the scheduler, in ", kLauncherLost,
                     " looks: ", requeued.ok() ? "the job is requeued" : std::string(requeued.message())));
  }

  // Servers that were given to this node, or taken from it.
  void Adopt(Cluster& cluster) {
    const std::optional<NodeRoles> roles = RolesOf(plan_, facts_.node.name);
    std::set<std::string> servers;
    if (roles) servers.insert(roles->servers.begin(), roles->servers.end());
    for (const std::string& name : servers_) {
      if (servers.contains(name)) continue;
      Say(absl::StrCat(name, " is another node's now"));
      cluster.GiveUpServer(name);
    }
    for (const std::string& name : servers) {
      if (servers_.contains(name)) continue;
      const absl::Status taken = cluster.TakeServer(name);
      Say(taken.ok() ? absl::StrCat(name, " is started here")
                     : absl::StrCat(name, " cannot be started: ", taken.message()));
    }
    servers_ = std::move(servers);
  }

  void Complain(const std::string& trouble) {
    if (complained_) return;
    complained_ = true;
    Say(trouble);
    if (absl::Status status = meeting_.Trouble(facts_.node.name, trouble); !status.ok()) {
      Say(std::string(status.message()));
    }
  }

  // The file is there for what is said when srun is gone.
  void Say(const std::string& line) {
    if (json_) {
      log::Info(line);
    } else {
      out_.Write(absl::StrCat(facts_.node.name, ": ", line, "\n"));
    }
    log_ << absl::FormatTime("%Y-%m-%d %H:%M:%S ", absl::Now(), absl::LocalTimeZone()) << line << std::endl;
  }

  const NodeOptions& options_;
  const Allocation allocation_;
  const Meeting meeting_;
  const NodeFacts facts_;
  SignalQueue& signals_;
  Output out_{STDOUT_FILENO};
  std::ofstream log_;
  Plan plan_;
  std::set<std::string> servers_;
  uint64_t beat_ = 0;
  size_t silent_looks_ = 0;
  bool answered_ = false;  // the scheduler, since the last look
  absl::Time look_at_launcher_ = absl::InfinitePast();
  bool json_ = false;  // says so what it has to say
  bool leaving_ = false;
  bool complained_ = false;
};

}  // namespace

int ServeNode(const NodeOptions& options) {
  SignalQueue signals;
  // The srun that takes what is said here may be gone before this ends.
  ::signal(SIGPIPE, SIG_IGN);
  const absl::StatusOr<TaskPlace> place = ReadTaskPlace(ProcessEnvironment());
  if (!place.ok()) return Complain(place.status());
  const absl::StatusOr<Allocation> allocation = ReadAllocation(ProcessEnvironment());
  if (!allocation.ok()) return Complain(allocation.status());
  // One a node is enough, however many tasks the job has there.
  if (place->local_rank > 0) return kExitDone;
  const absl::StatusOr<std::string> address = network::AddressOfNode(place->node, options.interface);
  if (!address.ok())
    return Complain(absl::UnavailableError(absl::StrCat(place->node, ": ", address.status().message())));
  NodeFacts facts;
  facts.node = {place->node, place->topology, std::max(1u, place->cpus), place->gpus, place->component};
  facts.address = *address;
  facts.machine = Machine();
  const absl::Status served = NodeKeeper(options, *allocation, facts, signals).Serve();
  if (served.ok()) return kExitDone;
  return Complain(absl::UnavailableError(absl::StrCat(place->node, ": ", served.message())));
}

}  // namespace slackline::cli::slurm
