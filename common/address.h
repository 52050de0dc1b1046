// Addresses as people write them on a command line.
#pragma once

#include <string>

namespace slackline {

// Empty if `text` is HOST:PORT or [IPV6]:PORT, else what is wrong with it. For CLI11's check().
std::string AddressMistake(const std::string& text);

// The same for where a process is to be found, which may also be a file that holds its address: anything with a slash
// that is no folder.
std::string PlaceMistake(const std::string& text);

// Whether only processes of this machine reach what listens on `host`: localhost, 127.0.0.0/8, [::1]. Other names are
// not looked up.
bool IsLoopback(const std::string& host);

// What processes of a job without security may listen on, and what can be done about it; for messages.
extern const char kListeningAllowed[];

// The host of HOST:PORT.
std::string HostOf(const std::string& address);

}  // namespace slackline
