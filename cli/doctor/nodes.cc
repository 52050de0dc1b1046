#include "cli/doctor/nodes.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/base/process.h"
#include "cli/base/scratch_folder.h"
#include "cli/base/sibling.h"
#include "cli/doctor/checks.h"
#include "cli/doctor/links.h"
#include "cli/doctor/peer.h"
#include "cli/doctor/words.h"
#include "cli/slurm/slurm_programs.h"
#include "common/network/interfaces.h"

namespace slackline::cli::doctor {
namespace {

namespace fs = std::filesystem;

// Until all nodes are there, with their own findings: their disks are tried meanwhile.
constexpr absl::Duration kNodesPatience = absl::Minutes(3);
constexpr absl::Duration kAcceptPoll = absl::Milliseconds(200);
constexpr absl::Duration kNodePatience = absl::Seconds(30);
constexpr absl::Duration kTokenPatience = absl::Seconds(5);
// For all links together; for one, beside what the nodes themselves wait for each other.
constexpr absl::Duration kLinksPatience = absl::Minutes(3);
constexpr absl::Duration kPairGrace = absl::Seconds(5);
constexpr uint32_t kClockBounces = 50;
constexpr absl::Duration kScontrolPatience = absl::Seconds(20);

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

// A node that has come.
struct Node {
  Socket socket;
  Examined machine;
  // Where it takes others; empty: nowhere.
  std::string where;
};

Node AskNode(Socket socket) {
  const absl::Time deadline = absl::Now() + kNodePatience;
  Node node = {std::move(socket), {"a node that broke off", {}}, ""};
  const absl::StatusOr<std::string> said = AskFindings(node.socket, deadline);
  absl::StatusOr<Examined> parsed = said.ok() ? ParseMachine(*said) : said.status();
  if (!parsed.ok()) {
    node.machine.findings.push_back(
        {Level::kProblem, "doctor", std::string(parsed.status().message()), "an answer", "look at the node"});
    return node;
  }
  node.machine = *std::move(parsed);
  const absl::StatusOr<LinkFacts> clock = MeasureClock(node.socket, kClockBounces, deadline);
  if (clock.ok()) node.machine.findings.push_back(CheckClocks(*clock, "the first node"));
  if (absl::StatusOr<std::string> where = AskWhere(node.socket, deadline); where.ok()) node.where = *std::move(where);
  return node;
}

std::vector<MeasuredLink> MeasureRound(const std::vector<Node>& nodes, const LinkRound& round) {
  const absl::Time deadline = absl::Now() + kPairPatience + kPairGrace;
  std::vector<MeasuredLink> links;
  for (const NodePair& pair : round) {
    const Node& guest = nodes[pair.one];
    const Node& host = nodes[pair.other];
    MeasuredLink& link = links.emplace_back(MeasuredLink{guest.machine.host, host.machine.host, {}, {}});
    if (host.where.empty()) {
      link.status = absl::UnavailableError(absl::StrCat(host.machine.host, " cannot listen for the others"));
    } else {
      link.status = BeginPair(guest.socket, host.socket, host.where, deadline);
    }
  }
  for (size_t i = 0; i < round.size(); ++i) {
    if (!links[i].status.ok()) continue;
    const absl::StatusOr<LinkFacts> facts = EndPair(nodes[round[i].one].socket, nodes[round[i].other].socket, deadline);
    links[i].status = facts.status();
    if (facts.ok()) links[i].facts = *facts;
  }
  return links;
}

Findings ExamineLinks(const std::vector<Node>& nodes, const job::Job& job, const Load& load) {
  if (nodes.size() < 2) return {Skipped("links", "there is one node only")};
  const absl::Time deadline = absl::Now() + kLinksPatience;
  std::vector<MeasuredLink> links;
  size_t left_out = 0;
  for (const LinkRound& round : ChooseLinks(nodes.size(), absl::Uniform<uint64_t>(absl::BitGen()))) {
    if (absl::Now() > deadline) {
      left_out += round.size();
      continue;
    }
    std::vector<MeasuredLink> measured = MeasureRound(nodes, round);
    std::move(measured.begin(), measured.end(), std::back_inserter(links));
  }
  Findings findings = CheckLinks(links, nodes.size(), job, load);
  if (left_out > 0) {
    findings.push_back({Level::kWarning, "links left out", absl::StrCat(left_out, " pairs"),
                        absl::StrCat("all pairs within ", Time(kLinksPatience)),
                        "first mend the links that are broken or slow, or look at fewer nodes at a time"});
  }
  return findings;
}

std::vector<Socket> AwaitNodes(const Socket& listener, Process& launcher, const std::string& token, uint32_t nodes) {
  const absl::Time deadline = absl::Now() + kNodesPatience;
  std::vector<Socket> here;
  while (here.size() < nodes && absl::Now() < deadline) {
    absl::StatusOr<Socket> next = listener.Accept(absl::Now() + kAcceptPoll);
    if (next.ok() && SaysToken(*next, token, absl::Now() + kTokenPatience)) here.push_back(*std::move(next));
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
  const ScratchFolder scratch("doctor");
  const std::string token = NewToken();
  absl::StatusOr<Process> launcher =
      StartDoctors(options, *allocation, listener->Address(), token, scratch.path() / "srun");
  if (!launcher.ok()) return launcher.status();
  std::vector<Socket> sockets = AwaitNodes(*listener, *launcher, token, allocation->nodes);
  Load load = NodeLoad(job, allocation->nodes);
  if (options.parameters > 0) load.parameters = options.parameters;
  std::vector<Node> nodes;
  for (Socket& socket : sockets) nodes.push_back(AskNode(std::move(socket)));
  std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.machine.host < b.machine.host; });
  Examined all = AllNodes(allocation->nodes, nodes.size(), launcher->LastWords(), scratch.path(), job);
  Append(all.findings, ExamineLinks(nodes, job, load));
  std::vector<Examined> machines;
  for (Node& node : nodes) {
    static_cast<void>(EndLink(node.socket, absl::Now() + kTokenPatience));
    machines.push_back(std::move(node.machine));
  }
  machines.push_back(std::move(all));
  static_cast<void>(launcher->WaitFor(kTokenPatience));
  return machines;
}

absl::Status ReportTo(const DoctorOptions& options, const job::Job& job, const Examined& here) {
  Examined named = here;
  const std::string node = slurm::ProcessEnvironment()("SLURMD_NODENAME");
  if (!node.empty()) named.host = node;
  const absl::StatusOr<Socket> socket = Socket::Connect(options.report_to, absl::Now() + kNodePatience);
  if (!socket.ok()) return socket.status();
  const absl::StatusOr<std::string> address = network::AddressOfNode(node, job.network().interface());
  const absl::StatusOr<Socket> listener = address.ok() ? Socket::Listen(*address) : address.status();
  const absl::Time deadline = absl::Now() + kNodesPatience + kLinksPatience + kNodePatience;
  if (absl::Status sent = socket->Send(options.token.data(), options.token.size(), deadline); !sent.ok()) return sent;
  return AnswerLink(*socket, {RenderMachine(named), options.token, listener.ok() ? &*listener : nullptr}, deadline);
}

}  // namespace slackline::cli::doctor
