// Addresses as people write them on a command line.
#pragma once

#include <string>

namespace slackline {

// Empty if `text` is HOST:PORT or [IPV6]:PORT, else what is wrong with it. For CLI11's check().
std::string AddressMistake(const std::string& text);

}  // namespace slackline
