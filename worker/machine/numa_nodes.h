// NUMA nodes of this machine: which cores and which GPUs are near which memory.
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
  uint32_t number = 0;  // number that the system uses
  std::vector<uint32_t> cores;
};

// Returns the nodes that have cores, ordered by number, from <sys>/devices/system/node. Empty if the system has no
// NUMA, or if its files make no sense.
std::vector<NumaNode> ReadNumaNodes(const std::filesystem::path& sys);

// Returns the node of each GPU as an index into `nodes`, from <sys>/bus/pci/devices. No value if the system does not
// know the node, or names a node without cores.
// `addresses`: addresses of the GPUs on the PCI bus, in upper or lower case ("0000:3B:00.0").
std::vector<std::optional<size_t>> NodesOfGpus(const std::filesystem::path& sys,
                                               absl::Span<const std::string> addresses,
                                               absl::Span<const NumaNode> nodes);

// Makes memory come from this node, while the node has some, if the calling thread or a thread that it makes is the
// first to touch that memory.
//   kFailedPrecondition  the system does not allow it (as in many containers); names the node
absl::Status PreferMemoryOf(uint32_t node);

}  // namespace slackline::worker
