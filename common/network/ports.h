// Ports that processes may listen on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::network {

// Both may be used.
struct PortRange {
  uint16_t low = 0;
  uint16_t high = 0;

  uint32_t size() const { return uint32_t{high} - low + 1; }
};

// LOW-HIGH.
//   kInvalidArgument  "found X; allowed is Y"
absl::StatusOr<PortRange> ParsePortRange(const std::string& text);

// Gives `listen` one port of `range` after the other, from the one at `first` on, until it can listen on it. Those that
// somebody else listens on are passed over.
//   kResourceExhausted  none is free; says how many were tried
//   kUnavailable        `host` is no address of this machine, or this user may not listen there
//   what `listen` says of a port, after several attempts between which the port was free
absl::StatusOr<uint16_t> TakePort(const std::string& host, PortRange range, uint32_t first,
                                  const std::function<absl::Status(uint16_t port)>& listen);

// How many of `range` could be listened on just now; counts no further than `enough`.
//   kUnavailable  as TakePort() has it
absl::StatusOr<uint32_t> CountFreePorts(const std::string& host, PortRange range, uint32_t enough);

// Where the search in a range begins, so that processes that start together rarely ask for the same ports.
uint32_t AnyFirst();

// Starts a server with `start` on `address` (HOST:PORT), if its port is 0 on the first free port of `ports` (LOW-HIGH),
// and if that is empty on one that the system chooses.
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
