// Plans which of a job's processes run on which node of an allocation. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "job.pb.h"

namespace slackline::cli::slurm {

struct Node {
  std::string name;
  // Names of switches from the top down and of the node itself, joined by dots, as SLURM has them ("spine.leaf1.n1");
  // empty if unknown.
  std::string topology;
  uint32_t cpus = 1;
  uint32_t gpus = 0;
  // Part of a heterogeneous allocation that the node belongs to.
  uint32_t component = 0;
};

struct NodeRoles {
  std::string node;
  bool scheduler = false;
  std::vector<std::string> servers;
  std::vector<std::string> workers;

  friend bool operator==(const NodeRoles&, const NodeRoles&) = default;
};

// Returns the switches that a node is attached to, without the node itself; empty if unknown.
std::string SwitchOf(const Node& node);

// Roles of a node: whether it runs servers, and whether it runs a worker.
//  - If only some nodes have GPUs, these get the workers and the others the servers.
//  - Else, if the allocation is heterogeneous, its first component gets the servers and the others the workers.
//  - Else every node gets both.
struct Uses {
  bool servers = true;
  bool worker = true;
};
std::vector<Uses> UsesOf(absl::Span<const Node> nodes);

// Numbers of processes to deal out to nodes.
struct Processes {
  // Servers, backups included.
  uint32_t servers = 1;
  // Workers of a node: one for each of worker.groups.
  uint32_t groups = 1;
  // Or training scripts of a node: worker.per_node. One of the two is 1.
  uint32_t scripts = 1;

  uint32_t workers_of_a_node() const { return groups * scripts; }
};

// Returns the roles of each node, in the order of `nodes`:
//  - The first node runs the scheduler.
//  - Each node that computes runs a worker ("worker-NODE"). If there are several groups it runs a worker for each, in
//    their order ("worker-NODE-group0"), and likewise with several scripts ("worker-NODE-0").
//  - Servers ps-1 ... ps-`servers` are dealt out to the nodes that hold weights, one leaf switch after the other, so
//    that the servers and what they send are spread over nodes and switches.
//
// Requires: at least one node, at least one server; names differ.
std::vector<NodeRoles> PlanNodes(absl::Span<const Node> nodes, const Processes& processes);

// Returns the new node of a server whose node is lost: of the nodes that may have servers and are not among `lost`, the
// one with the fewest servers. Empty if there is none.
std::string NewPlaceFor(absl::Span<const Node> nodes, absl::Span<const NodeRoles> roles,
                        absl::Span<const std::string> lost);

// Devices of workers in an allocation with GPUs.
struct DefaultDevices {
  // True: worker.devices is `auto`. False: workers compute on CPUs, since the job says so.
  bool gpus = false;
  // Explanation for people.
  std::string note;
};
// Returns no value if the job names GPUs or groups, or leaves it to scripts.
std::optional<DefaultDevices> DevicesOfAllocation(const job::Job& job);

}  // namespace slackline::cli::slurm
