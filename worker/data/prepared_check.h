// Whether the files of prepared images are what their index says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/file_cache.h"
#include "worker/data/mapped_file.h"
#include "worker/data/prepared_index.h"

namespace slackline::worker {

// One shard as memory.
struct MappedShard {
  MappedFile images;
  MappedFile labels;
  const uint8_t* pixels = nullptr;  // rows x channels x height x width, of the index's type
  const char* label_bytes = nullptr;
  uint64_t rows = 0;
  // What keeps the files where they are.
  std::shared_ptr<const void> images_hold = nullptr;
  std::shared_ptr<const void> labels_hold = nullptr;

  int64_t label(uint64_t row) const;
};

// As files of NumPy's format have it.
absl::string_view NpyTypeOf(PixelType type);

// Opens both files of a shard, and compares sizes and headers with the index.
//   kNotFound         a file is missing
//   kInvalidArgument  a file has another size, another type or another shape, or is no file of NumPy's format
//   kUnavailable      a file cannot be read
absl::StatusOr<MappedShard> OpenShard(const std::string& folder, const PreparedShard& shard,
                                      const PreparedIndex& index);
// The same of files that `locate` finds, or makes.
using Locate = std::function<absl::StatusOr<HeldFile>(const PreparedFile& file)>;
absl::StatusOr<MappedShard> OpenShard(const Locate& locate, const PreparedShard& shard, const PreparedIndex& index);

// Labels are below `classes`.
//   kInvalidArgument  names the first that is not
absl::Status CheckLabels(const MappedShard& mapped, const PreparedShard& shard, uint64_t classes);

// Reads all pixels where they are numbers that may be none: those of float16 are 0 to 1.
//   kInvalidArgument  names the first that is not
absl::Status CheckPixels(const MappedShard& mapped, const PreparedShard& shard, const PreparedIndex& index);

// Reads all bytes.
//   kDataLoss  a checksum differs; names the file
absl::Status CheckBytes(const MappedShard& mapped, const PreparedShard& shard);

}  // namespace slackline::worker
