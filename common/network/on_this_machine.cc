#include "common/network/on_this_machine.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/network/interfaces.h"

namespace slackline::network {

absl::StatusOr<job::Network> OnThisMachine(const job::Network& network) {
  if (network.interface().empty()) return network;
  const absl::StatusOr<std::string> address = AddressOfInterface(network.interface());
  if (!address.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("network.interface: ", address.status().message()));
  }
  job::Network settled = network;
  settled.clear_interface();
  settled.set_listen(*address);
  return settled;
}

}  // namespace slackline::network
