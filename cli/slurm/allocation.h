// Facts about a process's SLURM allocation, from the environment variables that SLURM sets.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace slackline::cli::slurm {

// Function that returns the value of a variable; empty if it is not set.
using Environment = std::function<std::string(const std::string& name)>;
// Returns the environment of this process.
Environment ProcessEnvironment();

// Allocation as the batch script sees it.
struct Allocation {
  // Value of SLURM_JOB_ID; for a heterogeneous job, that of its leader.
  uint64_t job = 0;
  // Name of the job as people write it: "123", or "120_3" in an array.
  std::string name;
  // Number of the task in its array; empty outside of arrays.
  std::string task;
  // Number of times that the job was requeued.
  uint32_t restarts = 0;
  // Number of nodes of all components.
  uint32_t nodes = 0;
  // Number of components; more than 1 for a heterogeneous job.
  uint32_t components = 1;
};
// Reads the allocation.
//   kFailedPrecondition  not in an allocation
//   kInvalidArgument     a variable is not what SLURM sets
absl::StatusOr<Allocation> ReadAllocation(const Environment& environment);

// Returns settings of a task of an array, with the task's number in place of each `%a`. Outside of arrays (`task` is
// empty) they stay as they are.
std::vector<std::string> SettingsOfTask(std::vector<std::string> overrides, const std::string& task);

// Node and resources of a task of a step.
struct TaskPlace {
  std::string node;
  // Same as Node::topology.
  std::string topology;
  uint32_t component = 0;
  // Rank among the tasks of the step on this node, from 0.
  uint32_t local_rank = 0;
  // CPUs and GPUs of the allocation on this node.
  uint32_t cpus = 1;
  uint32_t gpus = 0;
};
// Reads the place of this task. Same errors as ReadAllocation().
absl::StatusOr<TaskPlace> ReadTaskPlace(const Environment& environment);

}  // namespace slackline::cli::slurm
