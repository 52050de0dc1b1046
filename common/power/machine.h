// The identity of the machine on which this process runs, for data that all processes of the machine share.
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
