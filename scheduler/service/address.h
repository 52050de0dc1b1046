// Address that the scheduler listens on, and how others learn it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "job.pb.h"

namespace slackline::scheduler {

// Returns the address to listen on: `flag` if it is not empty, else network.listen with port 0. Port 0 stands for the
// first free port of network.ports, or for one that the system chooses.
std::string ListenAddress(const std::string& flag, const job::Network& network);
// Returns the host:port that others use. The host is network.advertise if that is set, else the host listened on.
std::string AdvertisedAddress(const std::string& listen, const job::Network& network, uint16_t port);

// Writes "ADDRESS\n" to `path` so that a reader sees the whole file or no file.
//   kUnavailable  the file cannot be written
absl::Status WriteAddressFile(const std::string& path, const std::string& address);

}  // namespace slackline::scheduler
