#include "cli/doctor/control_groups.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace slackline::cli::doctor {
namespace {

namespace fs = std::filesystem;

// Version 1 says "no limit" by a number near 2^63.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

// Words of the file's first line; none where there is no file.
std::vector<std::string> Words(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return absl::StrSplit(line, ' ', absl::SkipEmpty());
}

std::optional<double> Number(const fs::path& path, size_t word = 0) {
  const std::vector<std::string> words = Words(path);
  double number = 0;
  if (words.size() <= word || !absl::SimpleAtod(words[word], &number) || number < 0) return std::nullopt;
  return number;
}

void TakeMemory(const fs::path& limit, const fs::path& used, GroupLimits& limits) {
  const std::optional<double> bytes = Number(limit);
  if (!bytes || *bytes >= static_cast<double>(kNoLimit)) return;
  const uint64_t found = static_cast<uint64_t>(*bytes);
  if (limits.memory_bytes && *limits.memory_bytes <= found) return;
  limits.memory_bytes = found;
  limits.memory_used_bytes = static_cast<uint64_t>(Number(used).value_or(0));
}

void TakeProcessors(std::optional<double> quota, std::optional<double> period, GroupLimits& limits) {
  if (!quota || !period || *period <= 0) return;
  const double threads = *quota / *period;
  if (!limits.processor_threads || threads < *limits.processor_threads) limits.processor_threads = threads;
}

void TakeFolder(const fs::path& folder, GroupLimits& limits) {
  TakeMemory(folder / "memory.max", folder / "memory.current", limits);
  TakeMemory(folder / "memory.limit_in_bytes", folder / "memory.usage_in_bytes", limits);
  TakeProcessors(Number(folder / "cpu.max"), Number(folder / "cpu.max", 1), limits);
  TakeProcessors(Number(folder / "cpu.cfs_quota_us"), Number(folder / "cpu.cfs_period_us"), limits);
}

}  // namespace

GroupLimits ReadGroupLimits(const fs::path& root) {
  GroupLimits limits;
  const fs::path groups = root / "sys/fs/cgroup";
  std::ifstream in(root / "proc/self/cgroup");
  // "0::/a/b" (version 2) or "4:memory:/a/b"; in a container the path may not be there, but its root is.
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const fs::path top = parts[1].empty() ? groups : groups / parts[1];
    fs::path path = fs::path(parts[2]).relative_path().lexically_normal();
    for (;; path = path.parent_path()) {
      TakeFolder(top / path, limits);
      if (path.empty()) break;
    }
  }
  return limits;
}

}  // namespace slackline::cli::doctor
