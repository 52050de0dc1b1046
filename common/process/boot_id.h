// The present boot of this machine.
#pragma once

#include <fstream>
#include <string>

namespace slackline {

// Returns a text that is equal in all processes of one machine since its boot, including those in containers. Empty if
// the kernel does not tell.
inline std::string BootId() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

}  // namespace slackline
