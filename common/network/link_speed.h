// The speed of the network interface that an address belongs to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/network/interfaces.h"

namespace slackline::network {

// Returns the speed from /sys/class/net in Mbit/s. `host` is a numeric address, or a name, which is looked up. Returns
// 0 if the speed is unknown: for a loopback address, an address that is not in `addresses`, or an interface that
// reports no speed (virtual ones often report none, or -1).
uint32_t LinkMbit(const std::string& host, const std::vector<InterfaceAddress>& addresses,
                  const std::filesystem::path& classes = "/sys/class/net");

}  // namespace slackline::network
