// Checks that the files of prepared images match their index.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "images/base/mapped_file.h"
#include "images/prepared/file_cache.h"
#include "images/prepared/prepared_index.h"

namespace slackline::images {

// A shard, mapped into memory.
struct MappedShard {
  MappedFile images;
  MappedFile labels;
  const uint8_t* pixels = nullptr;  // rows x channels x height x width, of the index's type
  const char* label_bytes = nullptr;
  uint64_t rows = 0;
  // Holds that keep the cached files from being removed.
  std::shared_ptr<const void> images_hold = nullptr;
  std::shared_ptr<const void> labels_hold = nullptr;

  int64_t label(uint64_t row) const;
};

// Returns the type as NumPy files name it.
absl::string_view NpyTypeOf(PixelType type);

// Opens both files of a shard, and compares sizes and headers with the index.
//   kNotFound         a file is missing
//   kInvalidArgument  a file has another size, another type or another shape, or is no file of NumPy's format
//   kUnavailable      a file cannot be read
absl::StatusOr<MappedShard> OpenShard(const std::string& folder, const PreparedShard& shard,
                                      const PreparedIndex& index);
// Finds or makes a file, and holds it.
using Locate = std::function<absl::StatusOr<HeldFile>(const PreparedFile& file)>;
absl::StatusOr<MappedShard> OpenShard(const Locate& locate, const PreparedShard& shard, const PreparedIndex& index);

// Checks that labels are below `classes`.
//   kInvalidArgument  names the first label that is not
absl::Status CheckLabels(const MappedShard& mapped, const PreparedShard& shard, uint64_t classes);

// Checks that pixels of float16 are from 0 to 1, by reading all of them. Pixels of uint8 need no check.
//   kInvalidArgument  names the first pixel that is not
absl::Status CheckPixels(const MappedShard& mapped, const PreparedShard& shard, const PreparedIndex& index);

// Reads all bytes and compares their checksums.
//   kDataLoss  a checksum differs; names the file
absl::Status CheckBytes(const MappedShard& mapped, const PreparedShard& shard);

}  // namespace slackline::images
