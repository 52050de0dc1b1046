// Which machine this process runs on, for what all its processes share.
#pragma once

#include <fstream>
#include <string>

#include "common/host_name.h"

namespace slackline::power {

// Equal in all processes of one machine since it was booted, those in containers included; where the kernel does not
// say, its name.
inline std::string MachineIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.empty() ? HostName() : boot;
}

}  // namespace slackline::power
