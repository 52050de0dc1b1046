// Assigns this process its cores among the workers of its machine, as worker.cores says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "job.pb.h"
#include "worker/machine/core_plan.h"

namespace slackline::worker {

struct PlaceOnMachine {
  // Index into worker.groups; 0 if the job has none.
  uint32_t group = 0;
  // "1/2": the second of two workers of the job on this machine. Empty: this is the only worker here, or there is one
  // worker of each group.
  std::string seat;
  // Above 0: the worker is alone in a container that may use this many processors, and the cores and GPUs that it sees
  // are its own. `seat` is empty then.
  uint32_t container_cpus = 0;
  // Number of GPUs of the machine.
  uint32_t gpus = 0;
  // Address of each GPU on the PCI bus, if known.
  std::vector<std::string> gpu_addresses = {};
  // Folder in which the system says which cores and GPUs are near each other.
  std::filesystem::path sys = "/sys";
};

// Plans the cores and logs the result. Binds the calling thread, and so the threads that it makes, to the cores that
// compute nothing. If the machine has several NUMA nodes and the cores that compute are all on one of them, the memory
// of these threads comes from that node first; the log says if the system does not allow this.
//   kInvalidArgument     the seat does not exist, or see PlanCores()
//   kFailedPrecondition  the system does not let the thread be bound
absl::StatusOr<CorePlan> TakeCores(const job::Job& job, const PlaceOnMachine& place);

}  // namespace slackline::worker
