#include "cli/slurm/allocation.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace slackline::cli::slurm {
namespace {

constexpr char kNotInside[] =
    "not inside a SLURM allocation; allowed is `slackline slurm submit JOB`, or sbatch with slurm/slackline.sbatch";

template <typename Number>
absl::Status ReadNumber(const Environment& environment, const std::string& name, Number& number) {
  const std::string text = environment(name);
  if (text.empty() || absl::SimpleAtoi(text, &number)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": found '", text, "'; allowed is a number"));
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return std::string(value == nullptr ? "" : value);
  };
}

absl::StatusOr<Allocation> ReadAllocation(const Environment& environment) {
  if (environment("SLURM_JOB_ID").empty()) {
    return absl::FailedPreconditionError(absl::StrCat("SLURM_JOB_ID is not set: ", kNotInside));
  }
  Allocation allocation;
  absl::Status status = ReadNumber(environment, "SLURM_JOB_ID", allocation.job);
  status.Update(ReadNumber(environment, "SLURM_RESTART_COUNT", allocation.restarts));
  status.Update(ReadNumber(environment, "SLURM_HET_SIZE", allocation.components));
  const std::string array = environment("SLURM_ARRAY_JOB_ID");
  if (!array.empty()) allocation.task = environment("SLURM_ARRAY_TASK_ID");
  allocation.name = array.empty() ? absl::StrCat(allocation.job) : absl::StrCat(array, "_", allocation.task);
  if (allocation.components <= 1) {
    allocation.components = 1;
    status.Update(ReadNumber(environment, "SLURM_JOB_NUM_NODES", allocation.nodes));
  }
  for (uint32_t component = 0; allocation.components > 1 && component < allocation.components; ++component) {
    uint32_t nodes = 0;
    status.Update(ReadNumber(environment, absl::StrCat("SLURM_JOB_NUM_NODES_HET_GROUP_", component), nodes));
    allocation.nodes += nodes;
  }
  if (!status.ok()) return status;
  if (allocation.nodes == 0) {
    return absl::InvalidArgumentError("SLURM_JOB_NUM_NODES: found no number of nodes; SLURM sets it in a batch script");
  }
  return allocation;
}

std::vector<std::string> SettingsOfTask(std::vector<std::string> overrides, const std::string& task) {
  if (task.empty()) return overrides;
  for (std::string& setting : overrides) absl::StrReplaceAll({{"%a", task}}, &setting);
  return overrides;
}

absl::StatusOr<TaskPlace> ReadTaskPlace(const Environment& environment) {
  TaskPlace place;
  place.node = environment("SLURMD_NODENAME");
  if (place.node.empty()) {
    return absl::FailedPreconditionError("SLURMD_NODENAME is not set: this is started by `slackline slurm run`");
  }
  // Without a topology plugin it is the name of the node alone, or not there.
  if (environment("SLURM_TOPOLOGY_ADDR_PATTERN").find("switch") != std::string::npos) {
    place.topology = environment("SLURM_TOPOLOGY_ADDR");
  }
  absl::Status status = ReadNumber(environment, "SLURM_CPUS_ON_NODE", place.cpus);
  status.Update(ReadNumber(environment, "SLURM_GPUS_ON_NODE", place.gpus));
  status.Update(ReadNumber(environment, "SLURM_LOCALID", place.local_rank));
  // In a step of several components the tasks are numbered through, one component after the other.
  uint32_t components = 1, rank = 0, tasks = 0;
  status.Update(ReadNumber(environment, "SLURM_HET_SIZE", components));
  status.Update(ReadNumber(environment, "SLURM_PROCID", rank));
  for (uint32_t component = 0; component < components && status.ok(); ++component) {
    uint32_t more = 0;
    status.Update(ReadNumber(environment, absl::StrCat("SLURM_NTASKS_HET_GROUP_", component), more));
    if (rank >= tasks) place.component = component;
    tasks += more;
  }
  if (!status.ok()) return status;
  return place;
}

}  // namespace slackline::cli::slurm
