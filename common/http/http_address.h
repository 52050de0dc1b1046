// Addresses of file servers, as data.path may hold one. This code decides which addresses are understood.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace slackline {

inline constexpr char kHttpPrefix[] = "http://";
inline bool IsHttp(absl::string_view path) { return absl::StartsWith(path, kHttpPrefix); }

// Returns whether `path` begins like an address of some protocol: LETTERS://, or http: and https: with another number
// of slashes.
bool IsAddress(absl::string_view path);

// Returns whether `path` is a folder of a file server: http://, https:// or ftp://.
bool IsFileServer(absl::string_view path);
// True if the server proves who it is by a certificate.
inline bool IsHttps(absl::string_view path) { return absl::StartsWith(path, "https://"); }

// address := ("http://" | "https://" | "ftp://") host [":" port] ["/" path]      Requires: IsFileServer(address).
//   host is a name, an IPv4 address or an IPv6 address in brackets; port is 1 to 65535; the path is a folder, whose
//   characters other than letters may be written as %XX.
//   kInvalidArgument  "found X; allowed is Y", without any password that the address contains
absl::Status CheckServerAddress(absl::string_view address);

}  // namespace slackline
