// The part of a machine that a training script gets where several run on it (worker.per_node).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace slackline::cli {

// What the scripts of a machine share.
struct Machine {
  std::vector<uint32_t> cores = {};
  // GPUs by the names that `gpu_variable` takes.
  std::vector<std::string> gpus = {};
  // Variable of the environment that says which GPUs a process sees.
  std::string gpu_variable = "CUDA_VISIBLE_DEVICES";
};

// Returns what this process may use: GPUs that its environment names, else those with a device file.
Machine ThisMachine();

// Returns the environment, as NAME=VALUE, of script `seat` of `seats`: its number, its GPUs and its cores. Scripts get
// equally many GPUs, the first ones one more if it does not come out even; several share one if there are fewer. Cores
// likewise, but nobody shares one: with fewer cores than scripts, none is named.
std::vector<std::string> EnvironmentOfSeat(const Machine& machine, uint32_t seat, uint32_t seats);

}  // namespace slackline::cli
