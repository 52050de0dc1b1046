// The part of a machine that a training script gets where several run on it (worker.per_node).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace slackline::cli {

// Cores and GPUs that the scripts of a machine share.
struct Machine {
  std::vector<uint32_t> cores = {};
  // GPUs by the names that `gpu_variable` takes.
  std::vector<std::string> gpus = {};
  // Variable of the environment that says which GPUs a process sees.
  std::string gpu_variable = "CUDA_VISIBLE_DEVICES";
};

// Returns what this process may use: GPUs that its environment names, else those with a device file.
Machine ThisMachine();

// Returns the environment, as NAME=VALUE, of script `seat` of `seats`: its number, its GPUs and its cores. All scripts
// get equally many GPUs, or the first ones one more. Several scripts share a GPU if there are fewer GPUs than scripts.
// Cores are dealt out likewise, but scripts share no core: with fewer cores than scripts, the environment names none.
std::vector<std::string> EnvironmentOfSeat(const Machine& machine, uint32_t seat, uint32_t seats);

}  // namespace slackline::cli
