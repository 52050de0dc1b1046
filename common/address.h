// Addresses as people write them on a command line.
#pragma once

#include <string>

namespace slackline {

// Empty if `text` is HOST:PORT or [IPV6]:PORT, else what is wrong with it. For CLI11's check().
std::string AddressMistake(const std::string& text);

// The same for where a process is to be found, which may also be a file that holds its address: anything with a slash.
std::string PlaceMistake(const std::string& text);

}  // namespace slackline
