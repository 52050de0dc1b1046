#include "common/network/link_speed.h"

#include <algorithm>
#include <fstream>

#include "common/base/address.h"

namespace slackline::network {

uint32_t LinkMbit(const std::string& host, const std::vector<InterfaceAddress>& addresses,
                  const std::filesystem::path& classes) {
  const std::string address = Resolved(host);
  if (address.empty() || IsLoopback(address)) return 0;
  const auto found = std::find_if(addresses.begin(), addresses.end(),
                                  [&](const InterfaceAddress& candidate) { return candidate.address == address; });
  if (found == addresses.end()) return 0;
  // -1, or no reading at all, where the interface has no speed.
  std::ifstream file(classes / found->interface / "speed");
  int64_t mbit = 0;
  return file >> mbit && mbit > 0 && mbit <= UINT32_MAX ? static_cast<uint32_t>(mbit) : 0;
}

}  // namespace slackline::network
