// The ports that processes may listen on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::network {

// A range of ports; both `low` and `high` may be used.
struct PortRange {
  uint16_t low = 0;
  uint16_t high = 0;

  uint32_t size() const { return uint32_t{high} - low + 1; }
};

// Parses LOW-HIGH.
//   kInvalidArgument  "found X; allowed is Y"
absl::StatusOr<PortRange> ParsePortRange(const std::string& text);

// Calls `listen` with one port of `range` after the other, starting with the one at index `first`, until it can listen.
// Ports on which somebody else listens are skipped.
//   kResourceExhausted  no port is free; says how many were tried
//   kUnavailable        `host` is not an address of this machine, or this user may not listen there
//   an error of `listen` is returned after several attempts at a port that was free before each of them
absl::StatusOr<uint16_t> TakePort(const std::string& host, PortRange range, uint32_t first,
                                  const std::function<absl::Status(uint16_t port)>& listen);

// Returns the number of ports in `range` that are free at this moment; counts no further than `enough`.
//   kUnavailable  as for TakePort()
absl::StatusOr<uint32_t> CountFreePorts(const std::string& host, PortRange range, uint32_t enough);

// Returns a random start for the search in a range, so that processes that start together rarely try the same ports.
uint32_t AnyFirst();

// Starts a server with `start` on `address` (HOST:PORT). If its port is 0, uses the first free port of `ports`
// (LOW-HIGH), or a port that the system chooses if `ports` is empty.
template <typename Server>
absl::StatusOr<std::unique_ptr<Server>> StartServer(
    const std::string& address, const std::string& ports,
    const std::function<absl::StatusOr<std::unique_ptr<Server>>(const std::string& address)>& start) {
  const size_t colon = address.rfind(':');
  if (ports.empty() || address.substr(colon) != ":0") return start(address);
  const absl::StatusOr<PortRange> range = ParsePortRange(ports);
  if (!range.ok()) return range.status();
  std::unique_ptr<Server> server;
  const std::string host = address.substr(0, colon);
  const absl::StatusOr<uint16_t> taken = TakePort(host, *range, AnyFirst(), [&](uint16_t port) -> absl::Status {
    absl::StatusOr<std::unique_ptr<Server>> started = start(host + ":" + std::to_string(port));
    if (started.ok()) server = *std::move(started);
    return started.status();
  });
  if (!taken.ok()) return taken.status();
  return server;
}

}  // namespace slackline::network
