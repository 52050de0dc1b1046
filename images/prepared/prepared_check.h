// Checks of the content of a mapped shard.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "images/prepared/prepared_index.h"
#include "images/prepared/prepared_shard.h"

namespace slackline::images {

// Checks that labels are below `classes`.
//   kInvalidArgument  names the first label that is not
absl::Status CheckLabels(const MappedShard& mapped, const PreparedShard& shard, uint64_t classes);

// Checks that pixels of float16 are from 0 to 1, by reading all of them. Pixels of uint8 need no check.
//   kInvalidArgument  names the first pixel that is not
absl::Status CheckPixels(const MappedShard& mapped, const PreparedShard& shard, const PreparedIndex& index);

// Reads all bytes of the files that are mapped and compares their checksums.
//   kDataLoss  a checksum differs; names the file
absl::Status CheckBytes(const MappedShard& mapped, const PreparedShard& shard);

}  // namespace slackline::images
