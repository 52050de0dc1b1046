// Finds the files inside a tar file of POSIX (ustar, pax) or GNU, as Python's tarfile writes them.
//
//   file   := member* zeros:512 ...
//   member := header:512 bytes{size} padding to 512
//
// A header of type L (GNU) or x (pax) carries values that the following header has no room for: a long name, or "length
// key=value\n" with path and size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace slackline::images::pictures {

struct TarMember {
  std::string name;
  uint64_t offset = 0;  // begin of the member's bytes in the tar file
  uint64_t bytes = 0;
};

// Returns the regular files in their order; links, folders and other types are skipped. Reads headers only.
//   kNotFound         no such file
//   kUnavailable      the file cannot be read
//   kInvalidArgument  not a tar file, damaged, cut short, compressed, or with sparse files; says where
absl::StatusOr<std::vector<TarMember>> ReadTarIndex(const std::string& path);

// Returns `bytes` bytes of the file, from `offset` on.
//   kNotFound         no such file
//   kUnavailable      the file cannot be read
//   kInvalidArgument  the file ends earlier
absl::StatusOr<std::string> ReadPart(const std::string& path, uint64_t offset, uint64_t bytes);

}  // namespace slackline::images::pictures
