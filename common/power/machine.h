// The identity of a machine since its boot, for data that all of its processes share, those in containers too.
#pragma once

#include <fstream>
#include <string>

#include "common/host_name.h"

namespace slackline::power {

// Returns a text that is equal in all processes of one machine since its boot, including those in containers. If the
// kernel does not tell, returns the machine's name.
inline std::string MachineIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.empty() ? HostName() : boot;
}

}  // namespace slackline::power
