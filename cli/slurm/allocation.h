// What SLURM tells a process of the allocation that it runs in, by the variables that it sets.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace slackline::cli::slurm {

// The value of a variable; empty where it is not set.
using Environment = std::function<std::string(const std::string& name)>;
// That of this process.
Environment ProcessEnvironment();

// As the batch script sees it.
struct Allocation {
  // SLURM_JOB_ID; of a heterogeneous job, its leader's.
  uint64_t job = 0;
  // As people call it: "123", or "120_3" in an array.
  std::string name;
  // How often it was requeued.
  uint32_t restarts = 0;
  // Of all components.
  uint32_t nodes = 0;
  // More than 1: heterogeneous.
  uint32_t components = 1;
};
//   kFailedPrecondition  not in an allocation
//   kInvalidArgument     a variable is not what SLURM sets
absl::StatusOr<Allocation> ReadAllocation(const Environment& environment);

// Where a task of a step runs.
struct TaskPlace {
  std::string node;
  // As scheduler::Node has it.
  std::string topology;
  uint32_t component = 0;
  // Among the tasks of the step on this node, from 0.
  uint32_t local_rank = 0;
  // Of the allocation on this node.
  uint32_t cpus = 1;
  uint32_t gpus = 0;
};
// The same errors.
absl::StatusOr<TaskPlace> ReadTaskPlace(const Environment& environment);

}  // namespace slackline::cli::slurm
