// The identity of a machine since its boot, for data that all of its processes share, those in containers too.
#pragma once

#include <string>

#include "common/process/boot_id.h"
#include "common/process/host_name.h"

namespace slackline::power {

// Returns BootId() or, if the kernel does not tell it, the machine's name.
inline std::string MachineIdentity() {
  const std::string boot = BootId();
  return boot.empty() ? HostName() : boot;
}

}  // namespace slackline::power
