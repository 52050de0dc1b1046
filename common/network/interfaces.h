// The network interfaces of this machine, and which of them a job means.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::network {

struct InterfaceAddress {
  // "ib0"
  std::string interface;
  // Numeric, IPv4 or [IPv6].
  std::string address;
};

// Whether `wanted` can be the name of an interface, or a network as ADDRESS/BITS; on any machine.
//   kInvalidArgument  "found X; allowed is Y"
absl::Status CheckInterface(const std::string& wanted);

// Those of this machine that are up, IPv4 first.
absl::StatusOr<std::vector<InterfaceAddress>> InterfaceAddresses();

// The numeric address that a name stands for, one that is not loopback if there is one; a numeric address itself. Empty
// for an unknown name.
std::string Resolved(const std::string& host);

// The first that `wanted` means.
//   kInvalidArgument  as CheckInterface()
//   kNotFound         none is; names those that are there
absl::StatusOr<std::string> Choose(const std::vector<InterfaceAddress>& addresses, const std::string& wanted);

// What `wanted` means on this machine.
absl::StatusOr<std::string> AddressOfInterface(const std::string& wanted);

// The same, or, where `wanted` is empty, what the name of the node or the host's own name stands for; a loopback
// address where they stand for nothing else.
absl::StatusOr<std::string> AddressOfNode(const std::string& node, const std::string& wanted);

}  // namespace slackline::network
