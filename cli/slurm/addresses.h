// At which address other nodes reach this one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace slackline::cli::slurm {

struct InterfaceAddress {
  // "ib0"
  std::string interface;
  // Numeric, IPv4 or [IPv6].
  std::string address;
};

// Those of this machine that are up, IPv4 first.
absl::StatusOr<std::vector<InterfaceAddress>> InterfaceAddresses();

// The first that `wanted` means: the name of an interface, or a network as ADDRESS/BITS.
//   kInvalidArgument  neither
//   kNotFound         none is; names those that are there
absl::StatusOr<std::string> Choose(const std::vector<InterfaceAddress>& addresses, const std::string& wanted);

// What `wanted` means, or, where it is empty, what the name of the node or the host's own name stands for; a
// loopback address where they stand for nothing else.
absl::StatusOr<std::string> AddressOfNode(const std::string& node, const std::string& wanted);

}  // namespace slackline::cli::slurm
