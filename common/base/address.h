// Addresses as people write them on a command line.
#pragma once

#include <string>

namespace slackline {

// Returns an empty text if `text` is HOST:PORT or [IPV6]:PORT, otherwise the mistake in it. For CLI11's check().
std::string AddressMistake(const std::string& text);

// Like AddressMistake(), for the place where a process can be found. The place may also be a file that holds the
// address: any path with a slash that is not a folder.
std::string PlaceMistake(const std::string& text);

// Returns whether a port on `host` can be reached only from this machine: localhost, 127.0.0.0/8, [::1]. Other names
// are not looked up.
bool IsLoopback(const std::string& host);

// Text for messages: the addresses on which a process of a job without security may listen, and the alternatives.
extern const char kListeningAllowed[];

// Returns the host of HOST:PORT.
std::string HostOf(const std::string& address);

}  // namespace slackline
