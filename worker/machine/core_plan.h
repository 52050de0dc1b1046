// Plans which cores each worker of a machine computes on, and which cores are left to its other threads. Pure: every
// worker of the machine makes the same plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/process/core_wish.h"

namespace slackline::worker {

// Cores that one worker of the machine wants.
struct CoreShare {
  // Setting of the job file that says so: "worker.cores", "worker.groups[1].cores".
  std::string key;
  CoreWish wish;
  uint32_t devices = 1;
  // True if the devices are GPUs. The thread of a GPU only hands out work, so it gets one core.
  bool gpus = false;
  // NUMA node of each of its GPUs, as an index into the list of nodes; empty if the nodes are not known.
  std::vector<size_t> near = {};
};

struct CorePlan {
  // Cores that the worker computes on; empty: not bound.
  std::vector<uint32_t> compute;
  // Cores of all other threads; all cores, if computing takes all of them. Empty only if nothing of this worker is
  // bound: no worker wants cores, the cores of the process are not known, or auto finds too few cores (see `note`).
  std::vector<uint32_t> others;
  // NUMA node that has all cores of `compute`, as an index into the list of nodes. No value if the machine has only one
  // node, or if `compute` is empty or spans several nodes.
  std::optional<size_t> node;
  // Explanation for people if the plan is not as one might expect; else empty.
  std::string note;
};

// Returns the plan for worker `self` of `workers`.
// `cores`: cores that the process may use, rising. Workers with lists get their cores first, then workers with counts,
// each from the lowest core that is left. Workers with auto share the rest, less an eighth of all cores (at least one):
// each GPU gets one core, each CPU device gets equally many.
// `nodes`: cores of each NUMA node. With more than one node, counts and auto first take cores near the worker's GPUs.
// Then they take cores of the node that has the fewest cores left but enough for them. If no node has enough, they take
// cores from the lowest one on.
//   kInvalidArgument  a core does not exist or two workers want it, or more cores are wanted than there are; the
//                     message names these and what there is
absl::StatusOr<CorePlan> PlanCores(absl::Span<const uint32_t> cores, absl::Span<const CoreShare> workers, size_t self,
                                   absl::Span<const std::vector<uint32_t>> nodes = {});

}  // namespace slackline::worker
