// Which of a job's processes run on which node of an allocation. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace slackline::scheduler {

struct Node {
  std::string name;
  // Names of switches from the top down and of the node itself, joined by dots, as SLURM has them
  // ("spine.leaf1.n1"); empty where nobody knows.
  std::string topology;
  uint32_t cpus = 1;
  uint32_t gpus = 0;
  // Which part of a heterogeneous allocation it belongs to.
  uint32_t component = 0;
};

struct NodeRoles {
  std::string node;
  bool scheduler = false;
  std::vector<std::string> servers;
  std::vector<std::string> workers;

  friend bool operator==(const NodeRoles&, const NodeRoles&) = default;
};

// The switches that a node is attached to, without itself; empty where nobody knows.
std::string SwitchOf(const Node& node);

// Whether servers are on it, and whether a worker is: where some nodes have GPUs and others do not, the others get the
// servers and those the workers; else the first component of a heterogeneous allocation gets the servers and the others
// the workers; else every node gets both.
struct Uses {
  bool servers = true;
  bool worker = true;
};
std::vector<Uses> UsesOf(absl::Span<const Node> nodes);

// What is dealt out to nodes.
struct Processes {
  // With their backups.
  uint32_t servers = 1;
  // Workers of a node: one for each of worker.groups.
  uint32_t groups = 1;
};

// The scheduler on the first node; a worker on each node that computes ("worker-NODE"), or where there are several
// groups one for each of them, in their order ("worker-NODE-group0"); servers ps-1 ... ps-`servers` dealt out to the
// nodes that hold weights, one leaf switch after the other, so that they and what they send are spread over nodes and
// switches.
//
// One entry a node, in the order of `nodes`. Requires: at least one node, at least one server; names differ.
std::vector<NodeRoles> PlanNodes(absl::Span<const Node> nodes, const Processes& processes);

// Where a server goes whose node is lost: the node that may have servers, is not among `lost`, and has fewest. Empty
// where there is none.
std::string NewPlaceFor(absl::Span<const Node> nodes, absl::Span<const NodeRoles> roles,
                        absl::Span<const std::string> lost);

}  // namespace slackline::scheduler
