#include "cli/doctor/nodes.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/doctor/checks.h"
#include "cli/doctor/peer.h"
#include "cli/process.h"
#include "cli/sibling.h"
#include "cli/slurm/allocation.h"
#include "cli/slurm/commands.h"
#include "common/network/interfaces.h"

namespace slackline::cli::doctor {
namespace {

namespace fs = std::filesystem;

// Until all nodes are there, with their own findings: their disks are tried meanwhile.
constexpr absl::Duration kNodesPatience = absl::Minutes(3);
constexpr absl::Duration kAcceptPoll = absl::Milliseconds(200);
constexpr absl::Duration kNodePatience = absl::Seconds(30);
constexpr absl::Duration kTokenPatience = absl::Seconds(5);
constexpr absl::Duration kScontrolPatience = absl::Seconds(20);

// A folder for what programs of SLURM say, removed in the end.
class Scratch {
 public:
  Scratch() {
    std::error_code error;
    std::string name = fs::temp_directory_path(error) / "slackline-doctor-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string NewToken() {
  absl::BitGen random;
  return absl::StrCat(absl::Hex(absl::Uniform<uint64_t>(random), absl::kZeroPad16));
}

absl::StatusOr<Process> StartDoctors(const DoctorOptions& options, const slurm::Allocation& allocation,
                                     const std::string& address, const std::string& token, const fs::path& log) {
  const absl::StatusOr<fs::path> self = Sibling("slackline");
  if (!self.ok()) return self.status();
  std::vector<std::string> command = {"/usr/bin/env"};
  // What an allocation was asked for must not make the step smaller.
  for (const char* name : {"SLURM_HINT", "SLURM_THREADS_PER_CORE", "SLURM_CPUS_PER_TASK", "SLURM_NTASKS_PER_NODE",
                           "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_EXPORT_ENV"}) {
    command.insert(command.end(), {"-u", name});
  }
  command.insert(command.end(), {"srun", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--mem=0", "--overlap",
                                 "--cpu-bind=none", "--export=ALL", "--mpi=none"});
  if (allocation.components > 1) {
    command.push_back(absl::StrCat("--het-group=0-", allocation.components - 1));
  } else {
    command.insert(command.end(), {absl::StrCat("--nodes=", allocation.nodes),
                                   absl::StrCat("--ntasks=", allocation.nodes), "--ntasks-per-node=1"});
  }
  command.insert(command.end(), {self->string(), "doctor"});
  if (!options.job_file.empty()) command.push_back(fs::absolute(options.job_file));
  for (const std::string& setting : options.overrides) command.insert(command.end(), {"--set", setting});
  if (!options.run_folder.empty()) command.insert(command.end(), {"--run-folder", fs::absolute(options.run_folder)});
  if (options.parameters > 0) command.insert(command.end(), {"--parameters", absl::StrCat(options.parameters)});
  command.insert(command.end(), {"--disk-megabytes", absl::StrCat(options.disk_megabytes), "--nodes",
                                 absl::StrCat(allocation.nodes), "--report-to", address, "--token", token});
  return Process::Start({"srun", std::move(command), log});
}

// Only who was started with the token is listened to.
bool IsOurs(const Socket& socket, const std::string& token) {
  std::string said(kTokenBytes, '\0');
  return socket.Receive(said.data(), said.size(), absl::Now() + kTokenPatience).ok() && said == token;
}

Examined AskNode(const Socket& node, const job::Job& job, const Load& load) {
  const absl::Time deadline = absl::Now() + kNodePatience;
  Examined machine = {"a node that broke off", {}};
  const absl::StatusOr<std::string> said = AskFindings(node, deadline);
  if (absl::StatusOr<Examined> parsed = said.ok() ? ParseMachine(*said) : said.status(); parsed.ok()) {
    machine = *std::move(parsed);
  } else {
    machine.findings.push_back(
        {Level::kProblem, "doctor", std::string(parsed.status().message()), "an answer", "look at the node"});
    return machine;
  }
  const absl::StatusOr<LinkFacts> link = MeasureLink(node, {}, deadline);
  if (link.ok()) {
    Append(machine.findings, CheckLink(*link, "the first node", job, load));
  } else {
    machine.findings.push_back({Level::kProblem, "link with the first node", std::string(link.status().message()),
                                "a connection that lasts",
                                "the network between the nodes; --set network.interface=NAME chooses another"});
  }
  static_cast<void>(EndLink(node, deadline));
  return machine;
}

std::vector<Socket> AwaitNodes(const Socket& listener, Process& launcher, const std::string& token, uint32_t nodes) {
  const absl::Time deadline = absl::Now() + kNodesPatience;
  std::vector<Socket> here;
  while (here.size() < nodes && absl::Now() < deadline) {
    absl::StatusOr<Socket> next = listener.Accept(absl::Now() + kAcceptPoll);
    if (next.ok() && IsOurs(*next, token)) here.push_back(*std::move(next));
    if (!next.ok() && launcher.Poll()) break;
  }
  return here;
}

Examined AllNodes(uint32_t wanted, size_t came, const std::string& last_words, const fs::path& scratch,
                  const job::Job& job) {
  Examined all = {"all nodes", {}};
  if (came < wanted) {
    all.findings.push_back(
        {Level::kProblem, "nodes", absl::StrCat(came, " of ", wanted, " nodes have answered; srun says: ", last_words),
         "an answer of each",
         "look at those that are missing: sinfo -N -l; they must see this program, the job file and this node"});
  } else {
    all.findings.push_back(Fine("nodes", absl::StrCat("all ", wanted, " have answered")));
  }
  const absl::StatusOr<std::string> config =
      slurm::Ask({"scontrol", "show", "config"}, scratch / "config", kScontrolPatience);
  if (config.ok()) {
    Append(all.findings, CheckSlurmConfig(*config, job));
  } else {
    all.findings.push_back(Skipped("slurm", std::string(config.status().message())));
  }
  return all;
}

}  // namespace

bool IsTask(const slurm::Environment& environment) {
  // The largest numbers stand for the batch script and for the shell of an interactive allocation.
  constexpr uint32_t kNoSteps = 0xfffffff0;
  uint32_t step = 0;
  return absl::SimpleAtoi(environment("SLURM_STEP_ID"), &step) && step < kNoSteps;
}

absl::StatusOr<std::vector<Examined>> ExamineAllocation(const DoctorOptions& options, const job::Job& job) {
  if (IsTask(slurm::ProcessEnvironment())) return absl::FailedPreconditionError("this is a task of a step");
  const absl::StatusOr<slurm::Allocation> allocation = slurm::ReadAllocation(slurm::ProcessEnvironment());
  if (!allocation.ok()) return allocation.status();
  const std::string name = slurm::ProcessEnvironment()("SLURMD_NODENAME");
  const absl::StatusOr<std::string> address = network::AddressOfNode(name, job.network().interface());
  if (!address.ok()) return address.status();
  const absl::StatusOr<Socket> listener = Socket::Listen(*address);
  if (!listener.ok()) return listener.status();
  const Scratch scratch;
  const std::string token = NewToken();
  absl::StatusOr<Process> launcher =
      StartDoctors(options, *allocation, listener->Address(), token, scratch.path() / "srun");
  if (!launcher.ok()) return launcher.status();
  const std::vector<Socket> nodes = AwaitNodes(*listener, *launcher, token, allocation->nodes);
  Load load = NodeLoad(job, allocation->nodes);
  if (options.parameters > 0) load.parameters = options.parameters;
  std::vector<Examined> machines;
  for (const Socket& node : nodes) machines.push_back(AskNode(node, job, load));
  std::sort(machines.begin(), machines.end(), [](const Examined& a, const Examined& b) { return a.host < b.host; });
  machines.push_back(AllNodes(allocation->nodes, nodes.size(), launcher->LastWords(), scratch.path(), job));
  static_cast<void>(launcher->WaitFor(kTokenPatience));
  return machines;
}

absl::Status ReportTo(const DoctorOptions& options, const Examined& here) {
  Examined named = here;
  if (const std::string node = slurm::ProcessEnvironment()("SLURMD_NODENAME"); !node.empty()) named.host = node;
  const absl::StatusOr<Socket> socket = Socket::Connect(options.report_to, absl::Now() + kNodePatience);
  if (!socket.ok()) return socket.status();
  const absl::Time deadline = absl::Now() + kNodesPatience;
  if (absl::Status sent = socket->Send(options.token.data(), options.token.size(), deadline); !sent.ok()) return sent;
  return AnswerLink(*socket, RenderMachine(named), deadline);
}

}  // namespace slackline::cli::doctor
