// The name of this machine, for people.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace slackline {

// Returns an empty text if the system does not tell the name.
inline std::string HostName() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

}  // namespace slackline
