// What the service hands out, and the options of the command line that say so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace slackline::cli {

// What the service hands out to jobs, and what the jobs of one owner may have of it at the same time. 0: without limit,
// but for `jobs`.
struct QueueLimits {
  size_t jobs = 1;
  uint64_t memory_bytes = 0;
  // Names of the GPUs, as CUDA_VISIBLE_DEVICES has them. Empty: the service hands out none, and hides none.
  std::vector<std::string> gpus = {};
  size_t owner_jobs = 0;
  uint64_t owner_memory_bytes = 0;
  size_t owner_gpus = 0;
  // Ended jobs that are kept, beside those that were stopped. The host removes older ones, with their folders.
  size_t ended = 0;
};

// What jobs have together.
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
