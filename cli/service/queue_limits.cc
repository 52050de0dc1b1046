#include "cli/service/queue_limits.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/byte_size.h"

namespace slackline::cli {
namespace {

// Replaces the text by a number of bytes; returns the mistake if it is none.
std::string ToBytes(std::string& text) {
  const std::optional<uint64_t> bytes = ParseBytes(text);
  if (!bytes) return absl::StrCat("found '", text, "'; allowed are 1 byte to 1024 TiB, as 8GB, 1.5TB or 512MiB");
  text = absl::StrCat(*bytes);
  return "";
}

bool IsGpuNumber(const std::string& gpu) {
  const bool digits = !gpu.empty() && std::all_of(gpu.begin(), gpu.end(), absl::ascii_isdigit);
  return digits && gpu.size() <= 4 && (gpu == "0" || gpu.front() != '0');
}

bool IsGpuName(const std::string& gpu) {
  const bool begins = absl::StartsWith(gpu, "GPU-") || absl::StartsWith(gpu, "MIG-");
  return begins && gpu.size() > 4 && std::all_of(gpu.begin(), gpu.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '/';
         });
}

}  // namespace

std::string GpusMistake(const std::vector<std::string>& gpus) {
  std::set<std::string> seen;
  for (const std::string& gpu : gpus) {
    const bool alike = IsGpuNumber(gpu) ? IsGpuNumber(gpus.front()) : IsGpuName(gpu) && IsGpuName(gpus.front());
    if (alike && seen.insert(gpu).second) continue;
    return absl::StrCat("--gpus: found '", absl::StrJoin(gpus, ","),
                        "'; allowed are numbers as 0,1,2, or names as GPU-... or MIG-..., each once");
  }
  return "";
}

void AddBytes(CLI::App& command, const std::string& name, uint64_t& bytes, const std::string& help) {
  command.add_option(name, bytes, help)->type_name("SIZE")->transform(CLI::Validator(ToBytes, ""));
}

void AddLimits(CLI::App& command, QueueLimits& limits) {
  command.add_option("--jobs-max", limits.jobs, "Largest number of jobs that run at the same time. Default: 1")
      ->check(CLI::Range(1, 1000));
  AddBytes(command, "--memory-max", limits.memory_bytes,
           "Memory for all running jobs together, as they ask for it: 256GB or 240GiB. Default: without limit");
  command
      .add_option("--gpus", limits.gpus,
                  "GPUs for jobs that ask for some, as nvidia-smi numbers or names them: 0,1,2,3. Other jobs then see "
                  "none. Default: all jobs see all GPUs")
      ->delimiter(',')
      ->type_name("LIST");
  command
      .add_option("--owner-jobs-max", limits.owner_jobs,
                  "Largest number of jobs of an owner that run at the same time. Default: without limit")
      ->check(CLI::Range(1, 1000));
  AddBytes(command, "--owner-memory-max", limits.owner_memory_bytes,
           "Memory for all running jobs of an owner. Default: without limit");
  command
      .add_option("--owner-gpus-max", limits.owner_gpus,
                  "Largest number of GPUs of an owner's running jobs. Default: without limit")
      ->check(CLI::Range(1, 1000));
  command
      .add_option(
          "--ended-max", limits.ended,
          "Ended jobs that are kept, beside those that were stopped. Older ones are removed with their results. "
          "Default: all")
      ->check(CLI::Range(1, 100000));
}

}  // namespace slackline::cli
