// The network interfaces of this machine, and the choice of one by the job.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::network {

struct InterfaceAddress {
  // Name of the interface: "ib0".
  std::string interface;
  // Numeric address, IPv4 or [IPv6].
  std::string address;
};

// Checks that `wanted` can be the name of an interface, or a network as ADDRESS/BITS, on any machine.
//   kInvalidArgument  "found X; allowed is Y"
absl::Status CheckInterface(const std::string& wanted);

// Returns the addresses of this machine's interfaces that are up, IPv4 first, without link-local IPv6 addresses.
absl::StatusOr<std::vector<InterfaceAddress>> InterfaceAddresses();

// Returns the numeric address of a name, preferably one that is not loopback. Returns a numeric address unchanged, and
// an empty text for an unknown name.
std::string Resolved(const std::string& host);

// Returns the first address that matches `wanted`.
//   kInvalidArgument  as CheckInterface()
//   kNotFound         no address matches; names those that exist
absl::StatusOr<std::string> Choose(const std::vector<InterfaceAddress>& addresses, const std::string& wanted);

// Returns the address that `wanted` selects on this machine.
absl::StatusOr<std::string> AddressOfInterface(const std::string& wanted);

// Like AddressOfInterface(). If `wanted` is empty, returns the address of the node's name, or of the host's own name; a
// loopback address if these have no other.
absl::StatusOr<std::string> AddressOfNode(const std::string& node, const std::string& wanted);

}  // namespace slackline::network
