#include "cli/slurm/placement.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/complain.h"
#include "cli/base/scratch_folder.h"
#include "cli/run/cluster.h"
#include "cli/slurm/allocation.h"
#include "cli/slurm/slurm_programs.h"
#include "common/job/job_file.h"
#include "common/job/job_kinds.h"

namespace slackline::cli::slurm {
namespace {

constexpr absl::Duration kNodesAnswerMax = absl::Seconds(30);

// "gpu:a100:4(S:0-1),tmp:5" has 4.
uint32_t GpusOf(absl::string_view gres) {
  uint32_t gpus = 0;
  for (absl::string_view entry : absl::StrSplit(gres, ',')) {
    if (!absl::StartsWith(entry, "gpu")) continue;
    entry = entry.substr(0, entry.find('('));
    const size_t colon = entry.rfind(':');
    uint32_t count = 0;
    const bool counted = colon != absl::string_view::npos && absl::SimpleAtoi(entry.substr(colon + 1), &count);
    gpus += counted ? count : 1;
  }
  return gpus;
}

// What SLURM's commands say goes through a file.
class Answers {
 public:
  absl::StatusOr<std::string> Of(const std::vector<std::string>& command) const {
    return Ask(command, folder_.path() / "answer", kNodesAnswerMax);
  }

 private:
  const ScratchFolder folder_{"placement"};
};

absl::StatusOr<std::vector<Node>> AskForNodes(const std::string& names) {
  const Answers slurm;
  absl::StatusOr<std::string> list = slurm.Of({"sinfo", "--noheader", "--Node", "--nodes", names, "--format=%N %c %G"});
  if (!list.ok()) return list.status();
  std::vector<Node> nodes = ParseNodes(*list);
  // sinfo leaves out what it does not know.
  const absl::StatusOr<std::string> expanded = slurm.Of({"scontrol", "show", "hostnames", names});
  if (!expanded.ok()) return expanded.status();
  const std::vector<std::string> unknown = UnknownNodes(*expanded, nodes);
  if (!unknown.empty() || nodes.empty()) {
    return absl::NotFoundError(
        absl::StrCat("--nodes: found ", unknown.empty() ? names : absl::StrJoin(unknown, ", "),
                     ", which this cluster of SLURM does not have; allowed are those that `sinfo "
                     "--Node` shows"));
  }
  // A cluster may have no topology.
  const absl::StatusOr<std::string> topology = slurm.Of({"scontrol", "show", "topology"});
  if (!topology.ok()) return nodes;
  for (const auto& [leaf, members] : ParseLeafSwitches(*topology)) {
    const absl::StatusOr<std::string> below = slurm.Of({"scontrol", "show", "hostnames", members});
    if (!below.ok()) continue;
    const std::set<std::string> on_leaf = absl::StrSplit(*below, '\n');
    for (Node& node : nodes) {
      if (on_leaf.contains(node.name)) node.topology = absl::StrCat(leaf, ".", node.name);
    }
  }
  return nodes;
}

absl::StatusOr<std::vector<Node>> NodesOf(const PlacementOptions& options) {
  if (options.count > 0 && !options.nodes.empty()) {
    return absl::InvalidArgumentError("found --nodes and --count; allowed is one of them");
  }
  std::vector<Node> nodes;
  for (uint32_t number = 1; number <= options.count; ++number) {
    nodes.emplace_back();
    nodes.back().name = absl::StrCat("node", number);
  }
  if (!nodes.empty()) return nodes;
  const std::string names = options.nodes.empty() ? ProcessEnvironment()("SLURM_JOB_NODELIST") : options.nodes;
  if (names.empty()) {
    return absl::InvalidArgumentError(
        "found no nodes; allowed is --nodes with their names, --count, or an allocation of SLURM around this");
  }
  return AskForNodes(names);
}

void Print(const std::vector<Node>& nodes, const std::vector<NodeRoles>& plan) {
  std::printf("%-16s %-16s %5s %5s  %s\n", "NODE", "SWITCH", "CPUS", "GPUS", "RUNS");
  for (size_t index = 0; index < nodes.size(); ++index) {
    std::vector<std::string> runs = plan[index].servers;
    if (plan[index].scheduler) runs.insert(runs.begin(), "scheduler");
    runs.insert(runs.end(), plan[index].workers.begin(), plan[index].workers.end());
    const std::string leaf = SwitchOf(nodes[index]);
    std::printf("%-16s %-16s %5u %5u  %s\n", nodes[index].name.c_str(), leaf.empty() ? "-" : leaf.c_str(),
                nodes[index].cpus, nodes[index].gpus, runs.empty() ? "nothing" : absl::StrJoin(runs, ", ").c_str());
  }
}

}  // namespace

std::vector<Node> ParseNodes(const std::string& text) {
  std::vector<Node> nodes;
  std::set<std::string> known;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    // A node is there once for each of its partitions.
    if (words.empty() || !known.insert(words[0]).second) continue;
    Node node;
    node.name = words[0];
    if (words.size() > 1 && !absl::SimpleAtoi(words[1], &node.cpus)) node.cpus = 1;
    if (words.size() > 2) node.gpus = GpusOf(words[2]);
    nodes.push_back(node);
  }
  return nodes;
}

std::vector<std::string> UnknownNodes(const std::string& wanted, const std::vector<Node>& known) {
  std::vector<std::string> unknown;
  for (const absl::string_view name : absl::StrSplit(wanted, '\n', absl::SkipEmpty())) {
    const bool there = std::any_of(known.begin(), known.end(), [&](const Node& node) { return node.name == name; });
    if (!there) unknown.emplace_back(name);
  }
  return unknown;
}

std::map<std::string, std::string> ParseLeafSwitches(const std::string& text) {
  std::map<std::string, std::string> leaves;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::map<std::string, std::string> fields;
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      fields.insert(std::pair<std::string, std::string>(absl::StrSplit(word, absl::MaxSplits('=', 1))));
    }
    if (fields["Level"] == "0" && !fields["Nodes"].empty()) leaves[fields["SwitchName"]] = fields["Nodes"];
  }
  return leaves;
}

Processes ProcessesOf(const job::Job& job) {
  return {.servers = ServerProcesses(job),
          .groups = std::max(1u, static_cast<uint32_t>(job.worker().groups_size())),
          .scripts = WorkersOfScripts(job.worker())};
}

int ShowPlacement(const PlacementOptions& options) {
  const absl::StatusOr<job::Job> read = ReadJobFile(options.job_file, options.overrides);
  if (!read.ok()) return Complain(absl::InvalidArgumentError(read.status().message()));
  const job::Job job = Resolve(*read);
  const absl::StatusOr<std::vector<Node>> nodes = NodesOf(options);
  if (!nodes.ok()) return Complain(nodes.status());
  const std::vector<NodeRoles> plan = PlanNodes(*nodes, ProcessesOf(job));
  Print(*nodes, plan);
  const uint32_t servers = job.cluster().servers();
  std::printf(
      "%u shards, %u a server%s\n", servers * job.cluster().shards_per_server(), job.cluster().shards_per_server(),
      ServerProcesses(job) > servers ? "; half of the servers are backups, on another switch or node if that can be"
                                     : "");
  return kExitDone;
}

}  // namespace slackline::cli::slurm
