// The cores of this process among the workers of its machine, as worker.cores says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "job.pb.h"
#include "worker/core_plan.h"

namespace slackline::worker {

struct PlaceOnMachine {
  // Of worker.groups; 0 where there are none.
  uint32_t group = 0;
  // "1/2": the second of two workers of the job here. Empty: it is alone here, or with one worker of each other group.
  std::string seat;
  // Above 0: it is alone in a container that may use so many processors, and what it sees is its own. `seat` is empty.
  uint32_t container_cpus = 0;
  // Of the machine.
  uint32_t gpus = 0;
  // Of each of them on the PCI bus, where that is known.
  std::vector<std::string> gpu_addresses = {};
  // Where the system says which cores and GPUs are near each other.
  std::filesystem::path sys = "/sys";
};

// Plans, says in the log what comes of it, and binds the calling thread, and so those that it makes, to the cores that
// compute nothing, and their memory to the NUMA node of those that compute, where that is one of several.
//   kInvalidArgument     no such seat, or as PlanCores()
//   kFailedPrecondition  the system does not let it
absl::StatusOr<CorePlan> TakeCores(const job::Job& job, const PlaceOnMachine& place);

}  // namespace slackline::worker
