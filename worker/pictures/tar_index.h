// Where the files in a tar file lie: those of POSIX (ustar, pax) and of GNU, as Python's tarfile writes them.
//
//   file   := member* zeros:512 ...
//   member := header:512 bytes{size} padding to 512
//
// A header of type L (GNU) or x (pax) has in its bytes what the header behind it has no room for: a long name, or
// "length key=value\n" with path and size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace slackline::worker::pictures {

struct TarMember {
  std::string name;
  uint64_t offset = 0;  // of its bytes in the tar file
  uint64_t bytes = 0;
};

// The regular files, in their order; links, folders and the like are passed over. Reads headers only.
//   kNotFound         no such file
//   kUnavailable      it cannot be read
//   kInvalidArgument  no tar file, damaged, cut short, compressed, or with sparse files; says where
absl::StatusOr<std::vector<TarMember>> ReadTarIndex(const std::string& path);

// `bytes` of the file from `offset` on.
//   kNotFound         no such file
//   kUnavailable      it cannot be read
//   kInvalidArgument  it ends before
absl::StatusOr<std::string> ReadPart(const std::string& path, uint64_t offset, uint64_t bytes);

}  // namespace slackline::worker::pictures
