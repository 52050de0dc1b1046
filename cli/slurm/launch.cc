#include "cli/slurm/launch.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/base/complain.h"
#include "cli/base/sibling.h"
#include "cli/base/signals.h"
#include "cli/commands/checkpoints.h"
#include "cli/run/cluster.h"
#include "cli/run/run.h"
#include "cli/run/run_checks.h"
#include "cli/run/run_folder.h"
#include "cli/run/run_lock.h"
#include "cli/run/tracking.h"
#include "cli/slurm/allocation.h"
#include "cli/slurm/meeting.h"
#include "cli/slurm/node_cluster.h"
#include "cli/slurm/node_plan.h"
#include "cli/slurm/placement.h"
#include "cli/slurm/slurm_programs.h"
#include "common/base/address.h"
#include "common/job/job_file.h"
#include "common/job/job_timeouts.h"
#include "common/log/log_format.h"
#include "common/log/logging.h"
#include "common/process/device.h"
#include "common/security/make_credentials.h"
#include "common/time/clock.h"
#include "worker/settings/job_checks.h"

namespace slackline::cli::slurm {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kPoll = absl::Milliseconds(200);
// `scancel` tells the batch script and the nodes at once, preemption the nodes only: so long after a node has said that
// it must stop, the batch script would have been told, too.
constexpr absl::Duration kTellTogether = absl::Seconds(1);
constexpr int kRequeueTries = 3;
// Of the time before the end of the job, what the requeue needs.
constexpr absl::Duration kRequeueTakes = absl::Seconds(20);
// Clocks of nodes differ.
constexpr absl::Duration kCertifiedBefore = absl::Minutes(10);
constexpr absl::Duration kCertifiedFor = absl::Hours(365 * 24);

// One attempt of the allocation to run the job.
//
// Thread-safety: none.
class Attempt {
 public:
  Attempt(const LaunchOptions& options, const Allocation& allocation, SignalQueue& signals)
      : options_(options), allocation_(allocation), signals_(signals) {}

  int Execute() {
    absl::StatusOr<std::vector<std::string>> script = CommandOf(options_.script);
    if (!script.ok()) return Complain(script.status());
    script_ = *std::move(script);
    if (absl::Status status = ReadJob(); !status.ok()) return Complain(status);
    if (done_) return kExitDone;
    if (absl::Status status = CheckWorkers(script_, job_); !status.ok()) return Complain(status);
    if (absl::Status status = worker::CheckJob(job_); !status.ok()) return Complain(status);
    // A run that has waited in the queue is worth more than its trackers, which can get it later.
    if (absl::Status status = CheckTrackers(job_, script_); !status.ok()) log::Warning(std::string(status.message()));
    if (absl::Status status = KeepScript(script_, folder_path_); !status.ok()) return Fail(status);
    if (absl::Status status = CheckData(job_); !status.ok()) return Complain(status);
    absl::StatusOr<Programs> programs = Programs::BesideThisProgram(job_);
    if (!programs.ok()) return Fail(programs.status());
    Meeting meeting(folder_path_, absl::StrCat(allocation_.name, "-", allocation_.restarts));
    if (absl::Status status = meeting.Open(); !status.ok()) return Fail(status);
    absl::StatusOr<Process> launcher = StartNodes(meeting);
    if (!launcher.ok()) return Fail(launcher.status());
    Pulse pulse(meeting);
    if (absl::Status status = WaitForNodes(meeting, pulse, *launcher); !status.ok()) return Fail(status);
    if (absl::Status status = Adapt(); !status.ok()) return Fail(status);
    return Train(*std::move(programs), meeting, pulse, *launcher);
  }

 private:
  fs::path FolderPath(const job::Job& job) const {
    if (!options_.run_folder.empty()) return options_.run_folder;
    if (!job.output().folder().empty()) return job.output().folder();
    return fs::path("runs") / absl::StrCat(job.name(), "-slurm-", allocation_.name);
  }

  // The job of the file, or of the run that goes on; and its folder.
  absl::Status ReadJob() {
    if (options_.resume) {
      folder_path_ = options_.run_folder;
    } else {
      std::vector<std::string> overrides = options_.overrides;
      absl::StatusOr<job::Job> read = ReadJobOfWorkers(script_, options_.job_file, overrides);
      if (!read.ok()) return absl::InvalidArgumentError(read.status().message());
      job_ = *std::move(read);
      folder_path_ = FolderPath(job_);
    }
    folder_path_ = fs::absolute(folder_path_).lexically_normal();
    SpeakAsItSays();
    std::error_code error;
    const bool begun = fs::exists(folder_path_ / "job.yaml", error);
    if (options_.resume && !begun) {
      return absl::NotFoundError(absl::StrCat("found no run in ", folder_path_.string(), " (job.yaml)"));
    }
    fs::create_directories(folder_path_, error);
    absl::StatusOr<RunLock> lock = RunLock::Take(folder_path_, {allocation_.name, allocation_.restarts});
    if (!lock.ok()) return lock.status();
    lock_.emplace(*std::move(lock));
    if (!lock_->by_file().empty()) Say(lock_->by_file());
    if (!options_.resume && (!begun || allocation_.restarts == 0)) return CheckUnused(Resolve(job_), folder_path_);
    return GoOn();
  }

  void SpeakAsItSays() const {
    if (job_.output().log_format() == job::Output::JSON) log::WriteJson(job_.name());
  }

  absl::Status GoOn() {
    absl::StatusOr<job::Job> read = ReadJobFile(folder_path_ / "job.yaml", options_.overrides);
    if (!read.ok()) return absl::InvalidArgumentError(read.status().message());
    const job::Job run = Resolve(*read);
    absl::StatusOr<checkpoint::Choice> choice =
        ChooseCheckpoint(checkpoint::FolderOfRun(run.checkpoint().folder(), folder_path_), "");
    const fs::path checkpoints = checkpoint::FolderOfRun(run.checkpoint().folder(), folder_path_);
    if (absl::IsNotFound(choice.status()) && !options_.resume && checkpoint::List(checkpoints).empty())
      return PutAside();
    if (!choice.ok()) return choice.status();
    const absl::StatusOr<job::Job> before = ReadJobFile(folder_path_ / "job.yaml", {});
    if (!before.ok()) return before.status();
    if (absl::Status kept = CheckModelKept(Resolve(*before), run); !kept.ok()) return kept;
    for (const std::string& broken : choice->passed_over) Say(absl::StrCat("skipped a damaged checkpoint: ", broken));
    if (absl::Status left = CheckWorkIsLeft(*choice, run); !left.ok()) {
      if (options_.resume) return left;
      Say(std::string(left.message()));
      done_ = true;
      return absl::OkStatus();
    }
    job_ = run;
    absl::StatusOr<std::vector<std::string>> script = CommandToGoOn(options_.script, folder_path_);
    if (!script.ok()) return script.status();
    script_ = *std::move(script);
    SpeakAsItSays();
    checkpoint_ = choice->path;
    checkpoint_number_ = choice->manifest.number();
    Say(absl::StrCat("Going on from ", checkpoint_));
    return absl::OkStatus();
  }

  // An earlier attempt ended before its first checkpoint: this one begins anew.
  absl::Status PutAside() {
    const fs::path aside =
        folder_path_ / absl::StrCat("attempt-", allocation_.name, "-", allocation_.restarts, "-before");
    std::error_code error;
    fs::create_directory(aside, error);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_path_, error)) {
      if (!RunFolder::MayPrecede(entry.path().filename()))
        fs::rename(entry.path(), aside / entry.path().filename(), error);
      if (error) break;
    }
    if (error)
      return absl::UnavailableError(
          absl::StrCat("cannot move aside the files in ", folder_path_.string(), ": ", error.message()));
    Say(absl::StrCat("The run has no checkpoint yet and starts again; its earlier files are in ", aside.string()));
    return absl::OkStatus();
  }

  absl::StatusOr<Process> StartNodes(const Meeting& meeting) {
    const absl::StatusOr<std::string> self = Sibling("slackline");
    if (!self.ok()) return self.status();
    // What an allocation was asked for must not make the step smaller.
    std::vector<std::string> command = {"/usr/bin/env"};
    for (const char* name : {"SLURM_HINT", "SLURM_THREADS_PER_CORE", "SLURM_CPUS_PER_TASK", "SLURM_NTASKS_PER_NODE",
                             "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_EXPORT_ENV"}) {
      command.insert(command.end(), {"-u", name});
    }
    command.insert(command.end(), {"srun", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--mem=0",
                                   "--cpu-bind=none", "--export=ALL", "--mpi=none"});
    if (allocation_.components > 1) {
      command.push_back(absl::StrCat("--het-group=0-", allocation_.components - 1));
    } else {
      command.insert(command.end(), {absl::StrCat("--nodes=", allocation_.nodes),
                                     absl::StrCat("--ntasks=", allocation_.nodes), "--ntasks-per-node=1"});
    }
    command.insert(command.end(), options_.srun.begin(), options_.srun.end());
    const double patience = 2e-3 * job_.timeouts().startup_ms();
    command.insert(command.end(),
                   {*self, "slurm", "node", "--meeting", meeting.folder(), "--patience", absl::StrCat(patience)});
    const std::string& interface = options_.interface.empty() ? job_.network().interface() : options_.interface;
    if (!interface.empty()) command.insert(command.end(), {"--interface", interface});
    if (!options_.requeue) command.push_back("--no-requeue");
    return Process::Start({"srun", std::move(command), meeting.folder() / "srun.log"});
  }

  // All of them, or those that are there when the time is over.
  absl::Status WaitForNodes(const Meeting& meeting, Pulse& pulse, Process& launcher) {
    const absl::Duration patience = absl::Milliseconds(job_.timeouts().startup_ms());
    const absl::Time deadline = SteadyTime().Now() + patience;
    std::map<std::string, NodeFacts> arrived;
    while (arrived.size() < allocation_.nodes) {
      pulse.StillHere();
      const std::optional<int> signal = signals_.Wait(kPoll);
      if (signal && IsStop(*signal)) return absl::CancelledError("stopped while the nodes were starting");
      arrived = meeting.Arrived();
      if (const std::optional<ProcessEnd> end = launcher.Poll(); end && arrived.size() < allocation_.nodes) {
        return absl::AbortedError(absl::StrCat("srun has ended, ", end->Describe(),
                                               ", before the nodes were there; its last output:\n",
                                               launcher.LastWords()));
      }
      if (SteadyTime().Now() > deadline) break;
    }
    if (arrived.empty()) {
      return absl::DeadlineExceededError(
          absl::StrCat("waited ", absl::FormatDuration(patience),
                       " (timeouts.startup_ms) for the nodes, and none is there; srun says:\n", launcher.LastWords()));
    }
    if (arrived.size() < allocation_.nodes) {
      Say(absl::StrCat("goes on with ", arrived.size(), " nodes of ", allocation_.nodes,
                       ": the others were not there within ", absl::FormatDuration(patience),
                       " (timeouts.startup_ms)"));
    }
    for (auto& [name, facts] : arrived) {
      names_.push_back(name);
      nodes_.push_back(std::move(facts));
    }
    // The scheduler is where this runs.
    const std::string here = ProcessEnvironment()("SLURMD_NODENAME");
    std::sort(nodes_.begin(), nodes_.end(), [&](const NodeFacts& a, const NodeFacts& b) {
      const auto key = [&](const NodeFacts& facts) {
        return std::make_tuple(facts.node.name != here, facts.node.component, facts.node.name.size(), facts.node.name);
      };
      return key(a) < key(b);
    });
    if (nodes_.front().node.name != here) {
      return absl::UnavailableError(absl::StrCat("the node of the batch script, ", here, ", was not there in time"));
    }
    return CheckAddresses();
  }

  absl::Status CheckAddresses() const {
    std::set<std::string> machines;
    for (const NodeFacts& facts : nodes_) machines.insert(facts.machine);
    for (const NodeFacts& facts : nodes_) {
      if (machines.size() == 1 || !IsLoopback(facts.address)) continue;
      return absl::InvalidArgumentError(absl::StrCat(facts.node.name, " has only the address ", facts.address,
                                                     ", at which the other nodes do not reach it; allowed is "
                                                     "network.interface, or --interface, with the name of a network "
                                                     "interface, or a network such as 10.1.0.0/16"));
    }
    return absl::OkStatus();
  }

  // The numbers of the job are those of the allocation; and connections over a network are protected.
  absl::Status Adapt() {
    // T follows the number of workers, unless the job file has set it.
    job::Job plain = job_;
    plain.mutable_timeouts()->clear_heartbeat_ms();
    if (job_.timeouts().heartbeat_ms() == HeartbeatMsOf(plain)) job_.mutable_timeouts()->clear_heartbeat_ms();
    job::Cluster& cluster = *job_.mutable_cluster();
    std::vector<Node> nodes;
    for (const NodeFacts& facts : nodes_) nodes.push_back(facts.node);
    const std::vector<Uses> uses = UsesOf(nodes);
    const auto count = [&](auto member) {
      return static_cast<uint32_t>(std::count_if(uses.begin(), uses.end(), member));
    };
    cluster.set_workers(ProcessesOf(job_).workers_of_a_node() * count([](const Uses& use) { return use.worker; }));
    if (!cluster.has_worker_restarts_max()) cluster.set_worker_restarts_max(kWorkerRestarts);
    UseGpus();
    job_ = Resolve(job_);
    const bool local =
        std::all_of(nodes_.begin(), nodes_.end(), [](const NodeFacts& f) { return IsLoopback(f.address); });
    job::Security& security = *job_.mutable_security();
    if (local || security.mode() != job::Security::NONE || security.insecure()) return absl::OkStatus();
    security.set_mode(job::Security::TLS);
    security.set_folder(folder_path_ / "submit" / "credentials");
    // Certificates do not cover what nodes give each other, and the job has not asked for them.
    if (job_.data().cache().peers()) {
      Say("images go from node to node as plain text (data.cache.peers)");
      job_.mutable_data()->mutable_cache()->set_peers_in_clear(true);
    }
    std::error_code error;
    if (fs::exists(security.folder(), error)) return absl::OkStatus();
    Say(absl::StrCat("makes certificates for the connections between the nodes, in ", security.folder()));
    // Whole or not at all.
    const std::string draft = security.folder() + ".new";
    fs::create_directories(folder_path_ / "submit", error);
    fs::remove_all(draft, error);
    const absl::Time now = absl::Now();
    security::MakeOptions make;
    make.folder = draft;
    make.job = job_.name();
    make.not_before = now - kCertifiedBefore;
    make.not_after = now + kCertifiedFor;
    if (absl::Status made = security::MakeCredentials(make); !made.ok()) return made;
    fs::rename(draft, security.folder(), error);
    if (!error) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("cannot make ", security.folder(), ": ", error.message()));
  }

  // Users who ask SLURM for GPUs mean to compute on them.
  void UseGpus() {
    uint32_t gpus = 0;
    for (const NodeFacts& facts : nodes_) gpus += facts.node.gpus;
    if (gpus == 0) return;
    const std::optional<DefaultDevices> devices = DevicesOfAllocation(job_);
    if (!devices) return;
    Say(absl::StrCat("the allocation has ", gpus, " GPU(s): ", devices->note));
    if (devices->gpus) job_.mutable_worker()->add_devices(std::string(kAutoDevices));
  }

  int Train(Programs programs, const Meeting& meeting, Pulse& pulse, Process& launcher) {
    const absl::StatusOr<security::Security> security = OpenSecurity(job_);
    if (!security.ok()) return Fail(security.status());
    absl::StatusOr<RunFolder> folder =
        checkpoint_.empty() ? RunFolder::CreateSubmitted(folder_path_) : RunFolder::Reopen(folder_path_);
    if (!folder.ok()) return Complain(folder.status());
    if (absl::Status status = folder->WriteJob(ToYaml(job_)); !status.ok()) return Fail(status);
    std::vector<Node> nodes;
    for (const NodeFacts& facts : nodes_) nodes.push_back(facts.node);
    const std::vector<NodeRoles> roles = PlanNodes(nodes, ProcessesOf(job_));
    if (absl::Status status = CheckRoom(roles); !status.ok()) return ComplainOfWrongUse(status);
    Announce(roles);
    Share share;
    share.whole = false;
    share.scheduler_arguments = ListenAt(nodes_.front().address, job_.network());
    share.waiting = [&pulse] { pulse.StillHere(); };
    Cluster scheduler(job_, std::move(programs), security->To(security::Role::kScheduler), *folder, checkpoint_, share,
                      signals_);
    NodeCluster cluster(job_, scheduler, meeting, launcher, nodes, roles, script_, pulse, signals_);
    TimeLimit limit(allocation_.name, meeting.folder() / "squeue.log");
    RunOptions run_options;
    run_options.start = StartTextOf(options_.program, script_, folder->job_file(), {});
    run_options.command = "`slackline slurm run`";
    run_options.resume = absl::StrCat(options_.program, " slurm submit --resume --run-folder");
    run_options.leave_within = std::max(options_.stop_before - kRequeueTakes, kRequeueTakes);
    run_options.leave = [&](std::optional<int> signal) { return ReasonToLeave(signal, meeting, limit); };
    Run run(run_options, job_, *folder, signals_, cluster);
    const int code = run.Execute();
    if (run.left()) return GoToQueue(run, meeting);
    if (run.begun()) TrackRun(job_, script_, *folder, signals_);
    return code;
  }

  // Nodes may be one machine.
  absl::Status CheckRoom(const std::vector<NodeRoles>& roles) const {
    std::map<std::string, Crowd> crowds;
    for (size_t i = 0; i < roles.size(); ++i) {
      Crowd& crowd = crowds[nodes_[i].machine];
      crowd.scheduler = crowd.scheduler || roles[i].scheduler;
      crowd.servers += roles[i].servers.size();
      crowd.workers += roles[i].workers.size();
      if (absl::Status status = CheckPorts(job_.network(), crowd, absl::StrCat("on ", roles[i].node)); !status.ok())
        return status;
    }
    return absl::OkStatus();
  }

  void Announce(const std::vector<NodeRoles>& roles) const {
    for (const NodeRoles& node : roles) {
      std::vector<std::string> all = node.servers;
      all.insert(all.end(), node.workers.begin(), node.workers.end());
      if (node.scheduler) all.insert(all.begin(), "scheduler");
      Say(absl::StrCat(node.node, ": ", all.empty() ? "nothing" : absl::StrJoin(all, ", ")));
    }
  }

  std::string ReasonToLeave(std::optional<int> signal, const Meeting& meeting, TimeLimit& limit) {
    // Whoever ends the job itself does not want it back.
    if (signal && IsStop(*signal)) return "";
    if (signal && *signal == SIGUSR1) return "SIGUSR1 says that the time is nearly over";
    const absl::Time now = SteadyTime().Now();
    if (const absl::Time end = limit.End(); now >= end - options_.stop_before) {
      return absl::StrCat("the time of the job will be over in ",
                          absl::FormatDuration(absl::Floor(end - now, absl::Seconds(1))));
    }
    if (now < look_) return "";
    look_ = now + kTellTogether;
    const std::map<std::string, std::string> leaving = meeting.Leaving(names_);
    if (leaving.empty()) return "";
    if (!told_) {
      told_ = now;
      return "";
    }
    return absl::StrCat(leaving.begin()->first, ": ", leaving.begin()->second);
  }

  int GoToQueue(const Run& run, const Meeting& meeting) {
    if (!options_.requeue) {
      Say("stopped; to continue: submit the run again with --resume");
      return kExitFailed;
    }
    if (run.hurried()) {
      Say("stopped by a signal; not requeued");
      return kExitFailed;
    }
    if (!run.begun()) {
      Say("not requeued: training had not begun before it had to stop; allowed is a longer time for the job, or a "
          "shorter "
          "--stop-before");
      return kExitFailed;
    }
    const auto list = checkpoint::List(checkpoint::FolderOfRun(job_.checkpoint().folder(), folder_path_));
    if (list.empty() || list.front().number <= checkpoint_number_) {
      Say("not requeued: there is no checkpoint newer than what this attempt began with, and the next would do the "
          "same again");
      return kExitFailed;
    }
    absl::Status status;
    for (int tries = 0; tries < kRequeueTries; ++tries) {
      status = Requeue(allocation_.name, meeting.folder() / "requeue.log");
      if (!status.ok()) continue;
      Say("requeued: it goes on when SLURM starts it again");
      return kExitDone;
    }
    return Fail(absl::UnavailableError(
        absl::StrCat("cannot be requeued: ", status.message(), "; to continue: submit the run again with --resume")));
  }

  void Say(const std::string& line) const {
    if (job_.output().log_format() == job::Output::JSON) return log::Info(line);
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  const LaunchOptions& options_;
  const Allocation& allocation_;
  SignalQueue& signals_;
  job::Job job_;
  // As Share has it.
  std::vector<std::string> script_;
  fs::path folder_path_;
  // Empty: it begins.
  std::string checkpoint_;
  uint64_t checkpoint_number_ = 0;
  std::optional<RunLock> lock_;
  bool done_ = false;
  std::vector<NodeFacts> nodes_;
  std::vector<std::string> names_;  // of them
  absl::Time look_ = absl::InfinitePast();
  std::optional<absl::Time> told_;
};

}  // namespace

int Launch(const LaunchOptions& options) {
  // First of all: threads that start later must not take our signals.
  SignalQueue signals;
  if (options.resume == !options.job_file.empty()) {
    return Complain(absl::InvalidArgumentError("found a job file and --resume, or neither; allowed is one of them"));
  }
  if (options.resume && options.run_folder.empty()) {
    return Complain(
        absl::InvalidArgumentError("found --resume without --run-folder; allowed is the folder of the run"));
  }
  const absl::StatusOr<Allocation> allocation = ReadAllocation(ProcessEnvironment());
  if (!allocation.ok()) return ComplainOfWrongUse(allocation.status());
  LaunchOptions own = options;
  own.overrides = SettingsOfTask(options.overrides, allocation->task);
  return Attempt(own, *allocation, signals).Execute();
}

}  // namespace slackline::cli::slurm
