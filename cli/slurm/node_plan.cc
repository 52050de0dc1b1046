#include "cli/slurm/node_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/job/job_kinds.h"

namespace slackline::cli::slurm {
namespace {

// One from each switch, then the second of each, and so on; in the order of the nodes otherwise.
std::vector<size_t> SpreadOverSwitches(absl::Span<const Node> nodes, const std::vector<Uses>& uses) {
  std::map<std::string, size_t> seen;
  std::vector<std::pair<size_t, size_t>> order;  // (turn, index)
  for (size_t index = 0; index < nodes.size(); ++index) {
    if (uses[index].servers) order.push_back({seen[SwitchOf(nodes[index])]++, index});
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<size_t> result;
  for (const auto& [turn, index] : order) result.push_back(index);
  return result;
}

}  // namespace

std::string SwitchOf(const Node& node) {
  const size_t dot = node.topology.rfind('.');
  return dot == std::string::npos ? "" : node.topology.substr(0, dot);
}

std::vector<Uses> UsesOf(absl::Span<const Node> nodes) {
  const auto has_gpus = [](const Node& node) { return node.gpus > 0; };
  const bool by_gpus =
      std::any_of(nodes.begin(), nodes.end(), has_gpus) && !std::all_of(nodes.begin(), nodes.end(), has_gpus);
  const bool by_component = std::any_of(nodes.begin(), nodes.end(), [](const Node& n) { return n.component > 0; });
  std::vector<Uses> uses;
  for (const Node& node : nodes) {
    if (by_gpus) {
      uses.push_back({.servers = node.gpus == 0, .worker = node.gpus > 0});
    } else if (by_component) {
      uses.push_back({.servers = node.component == 0, .worker = node.component > 0});
    } else {
      uses.push_back({});
    }
  }
  return uses;
}

std::vector<NodeRoles> PlanNodes(absl::Span<const Node> nodes, const Processes& processes) {
  SLACKLINE_CHECK(!nodes.empty() && processes.servers > 0 && processes.workers_of_a_node() > 0);
  const std::vector<Uses> uses = UsesOf(nodes);
  std::vector<NodeRoles> roles;
  for (size_t index = 0; index < nodes.size(); ++index) {
    roles.push_back({nodes[index].name, /*scheduler=*/index == 0, {}, {}});
    for (uint32_t number = 0; uses[index].worker && number < processes.workers_of_a_node(); ++number) {
      const std::string suffix = processes.groups > 1    ? absl::StrCat("-group", number)
                                 : processes.scripts > 1 ? absl::StrCat("-", number)
                                                         : "";
      roles.back().workers.push_back(absl::StrCat("worker-", nodes[index].name, suffix));
    }
  }
  const std::vector<size_t> places = SpreadOverSwitches(nodes, uses);
  for (uint32_t number = 0; number < processes.servers; ++number) {
    roles[places[number % places.size()]].servers.push_back(absl::StrCat("ps-", number + 1));
  }
  return roles;
}

std::string NewPlaceFor(absl::Span<const Node> nodes, absl::Span<const NodeRoles> roles,
                        absl::Span<const std::string> lost) {
  const std::vector<Uses> uses = UsesOf(nodes);
  const NodeRoles* best = nullptr;
  for (size_t index = 0; index < nodes.size(); ++index) {
    if (!uses[index].servers || std::find(lost.begin(), lost.end(), nodes[index].name) != lost.end()) continue;
    if (best == nullptr || roles[index].servers.size() < best->servers.size()) best = &roles[index];
  }
  return best == nullptr ? "" : best->node;
}

std::optional<DefaultDevices> DevicesOfAllocation(const job::Job& job) {
  if (RunsScripts(job) || job.worker().groups_size() > 0) return std::nullopt;
  if (const auto& named = job.worker().devices(); !named.empty()) {
    if (std::any_of(named.begin(), named.end(), [](const std::string& name) { return name != "cpu"; }))
      return std::nullopt;
    return DefaultDevices{false, "workers compute on CPUs, as worker.devices says"};
  }
  return DefaultDevices{
      true,
      "each worker computes on all GPUs of its node, if it was built with CUDA (worker.devices: auto); "
      "--set worker.devices=cpu computes on CPUs"};
}

}  // namespace slackline::cli::slurm
