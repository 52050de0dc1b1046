// Which cores each worker of a machine computes on, and which are left to their other threads. Pure: every worker of
// the machine makes the same plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core_wish.h"

namespace slackline::worker {

// What one worker of the machine wants.
struct CoreShare {
  // Where the job file says it: "worker.cores", "worker.groups[1].cores".
  std::string key;
  CoreWish wish;
  uint32_t devices = 1;
  // A GPU's thread only hands out work: one core a device.
  bool gpus = false;
  // The NUMA nodes of its GPUs, as places in the list of nodes, one a GPU; empty where they are not known.
  std::vector<size_t> near = {};
};

struct CorePlan {
  // Empty: not bound.
  std::vector<uint32_t> compute;
  // Of all other threads; never empty where anybody is bound. All cores, where computing takes all of them.
  std::vector<uint32_t> others;
  // The node of all cores that compute, as a place in the list of nodes, where there are several and it is one.
  std::optional<size_t> node;
  // For people: why it is not as one might expect; empty where it is.
  std::string note;
};

// `cores`: those that the process may use, rising. Lists come first, then counts, each from the lowest core that is
// left; auto deals out the rest but for an eighth of the cores, at least one: to each GPU one, to each CPU device
// equally many.
// `nodes`: the cores of each NUMA node; with more than one, counts and auto take cores near the worker's GPUs, else
// those of the fullest node that they fit into, and from the lowest core on where they fit into none.
//   kInvalidArgument  a core that is not there, or that two workers want; more cores than there are: named with what is
//   there
absl::StatusOr<CorePlan> PlanCores(absl::Span<const uint32_t> cores, absl::Span<const CoreShare> workers, size_t self,
                                   absl::Span<const std::vector<uint32_t>> nodes = {});

}  // namespace slackline::worker
