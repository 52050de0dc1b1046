// The NUMA nodes of this machine: which cores and which GPUs lie near which memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace slackline::worker {

struct NumaNode {
  uint32_t number = 0;  // the system's
  std::vector<uint32_t> cores;
};

// Those of the nodes that have cores, by number, as <sys>/devices/system/node says. Empty where the system has no
// NUMA, or says what makes no sense.
std::vector<NumaNode> ReadNumaNodes(const std::filesystem::path& sys);

// Where in `nodes` each GPU lies, by its address on the PCI bus in any case of letters ("0000:3B:00.0"), as
// <sys>/bus/pci/devices says; nullopt where it does not, or names a node without cores.
std::vector<std::optional<size_t>> NodesOfGpus(const std::filesystem::path& sys,
                                               absl::Span<const std::string> addresses,
                                               absl::Span<const NumaNode> nodes);

// Memory that the calling thread, and those that it makes, touch first comes from this node while it has some.
//   kFailedPrecondition  the system does not let it (as in many containers); names the node
absl::Status PreferMemoryOf(uint32_t node);

}  // namespace slackline::worker
