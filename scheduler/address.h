// Where the scheduler listens, and how others learn it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "job.pb.h"

namespace slackline::scheduler {

// What to listen on: `flag` if it is not empty, else network.listen and port 0, for the first free one of network.ports
// or one that the system chooses.
std::string ListenAddress(const std::string& flag, const job::Network& network);
// host:port that others use: network.advertise if it is set, else the host listened on.
std::string AdvertisedAddress(const std::string& listen, const job::Network& network, uint16_t port);

// Writes "ADDRESS\n" to `path` so that a reader sees all of it or no file.
//   kUnavailable  it cannot be written
absl::Status WriteAddressFile(const std::string& path, const std::string& address);

}  // namespace slackline::scheduler
