// How fast the network interface is that an address belongs to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/network/interfaces.h"

namespace slackline::network {

// As /sys/class/net has it, in Mbit/s. `host`: a numeric address, or a name, which is looked up. 0 where nobody knows:
// a loopback address, one that is not in `addresses`, an interface that does not say (virtual ones often do not, or say
// -1).
uint32_t LinkMbit(const std::string& host, const std::vector<InterfaceAddress>& addresses,
                  const std::filesystem::path& classes = "/sys/class/net");

}  // namespace slackline::network
