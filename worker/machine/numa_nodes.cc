#include "worker/machine/numa_nodes.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/process/core_wish.h"

namespace slackline::worker {
namespace {

// <linux/mempolicy.h>, which not every system has.
constexpr int kMpolPreferred = 1;
constexpr uint32_t kNodesMax = 4096;

// The first line; empty where there is none.
std::string LineOf(const std::filesystem::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return std::string(absl::StripAsciiWhitespace(line));
}

// "0-3,8": as ParseCores() reads lists, but that a number alone is a core.
std::vector<uint32_t> CoresOf(const std::string& list) {
  std::vector<std::string> items = absl::StrSplit(list, ',', absl::SkipEmpty());
  if (items.size() == 1 && !absl::StrContains(items[0], '-')) items[0] = absl::StrCat(items[0], "-", items[0]);
  const auto wish = ParseCores(items);
  return wish.ok() && wish->kind == CoreWish::Kind::kList ? wish->cores : std::vector<uint32_t>();
}

}  // namespace

std::vector<NumaNode> ReadNumaNodes(const std::filesystem::path& sys) {
  std::vector<NumaNode> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(sys / "devices" / "system" / "node", error)) {
    const std::string name = entry.path().filename().string();
    uint32_t number = 0;
    if (!absl::StartsWith(name, "node") || !absl::SimpleAtoi(name.substr(4), &number) || number >= kNodesMax) continue;
    std::vector<uint32_t> cores = CoresOf(LineOf(entry.path() / "cpulist"));
    if (!cores.empty()) nodes.push_back({.number = number, .cores = std::move(cores)});
  }
  std::sort(nodes.begin(), nodes.end(), [](const NumaNode& a, const NumaNode& b) { return a.number < b.number; });
  return nodes;
}

std::vector<std::optional<size_t>> NodesOfGpus(const std::filesystem::path& sys,
                                               absl::Span<const std::string> addresses,
                                               absl::Span<const NumaNode> nodes) {
  std::vector<std::optional<size_t>> found;
  for (const std::string& address : addresses) {
    found.emplace_back();
    uint32_t number = 0;  // -1, where the system does not know
    const auto file = sys / "bus" / "pci" / "devices" / absl::AsciiStrToLower(address) / "numa_node";
    if (!absl::SimpleAtoi(LineOf(file), &number)) continue;
    const auto node =
        std::find_if(nodes.begin(), nodes.end(), [&](const NumaNode& node) { return node.number == number; });
    if (node != nodes.end()) found.back() = static_cast<size_t>(node - nodes.begin());
  }
  return found;
}

absl::Status PreferMemoryOf(uint32_t node) {
  constexpr uint32_t kBits = sizeof(unsigned long) * CHAR_BIT;  // NOLINT(google-runtime-int): the system call's
  std::array<unsigned long, kNodesMax / kBits> mask = {};       // NOLINT(google-runtime-int)
  errno = EINVAL;
  // The kernel reads one bit less than it is told of.
  if (node < kNodesMax) {
    mask[node / kBits] = 1UL << (node % kBits);
    if (::syscall(SYS_set_mempolicy, kMpolPreferred, mask.data(), kNodesMax + 1) == 0) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("memory cannot be taken from NUMA node ", node, " first: ", std::strerror(errno)));
}

}  // namespace slackline::worker
