// Addresses of servers of files, as data.path may have one: this decides which are understood.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace slackline {

inline constexpr char kHttpPrefix[] = "http://";
inline bool IsHttp(absl::string_view path) { return absl::StartsWith(path, kHttpPrefix); }

// Whether `path` begins as an address of some protocol: LETTERS://, or http: and https: with another number of slashes.
bool IsAddress(absl::string_view path);

// address := "http://" host [":" port] ["/" path]      Requires: IsHttp(address).
//   host is a name, an IPv4 address or an IPv6 address in brackets; port is 1 to 65535; the path is a folder, in which
//   what is no letter may stand as %XX.
//   kInvalidArgument  "found X; allowed is Y", without a password that stands in it
absl::Status CheckHttpAddress(absl::string_view address);

}  // namespace slackline
