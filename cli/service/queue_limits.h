// Limits of the service's queue, and the options that set them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace slackline::cli {

// Limits for all running jobs together, and for the running jobs of one owner. 0: without limit.
struct QueueLimits {
  size_t jobs = 1;  // at least 1
  uint64_t memory_bytes = 0;
  // Names of the GPUs, as CUDA_VISIBLE_DEVICES has them. Empty: the service hands out none, and hides none.
  std::vector<std::string> gpus = {};
  size_t owner_jobs = 0;
  uint64_t owner_memory_bytes = 0;
  size_t owner_gpus = 0;
  // Ended jobs that are kept, beside those that were stopped. The host removes older ones, with their folders.
  size_t ended = 0;
};

// Places among the running jobs, memory and GPUs: of one job, of several, or still free.
struct QueueShare {
  size_t jobs = 0;
  uint64_t memory_bytes = 0;
  size_t gpus = 0;
};

// Returns what is wrong with a list of GPUs; empty: nothing. CUDA takes numbers, or names (GPU-..., MIG-...), and not
// both.
std::string GpusMistake(const std::vector<std::string>& gpus);
// Adds the options that set the limits.
void AddLimits(CLI::App& command, QueueLimits& limits);
// Adds an option that takes a number of bytes, as 8GB or 512MiB.
void AddBytes(CLI::App& command, const std::string& name, uint64_t& bytes, const std::string& help);

}  // namespace slackline::cli
