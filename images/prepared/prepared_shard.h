// Maps the shards of prepared images, and compares their files with the index.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// Finds or makes a file, and holds it. `watch` may be null.
using Locate = std::function<absl::StatusOr<HeldFile>(const PreparedFile& file, const FetchWatch& watch)>;
// Returns a Locate for files that lie in `folder`.
Locate InFolder(const std::string& folder);

// Opens both files of a shard, and compares sizes and headers with the index.
//   kNotFound         a file is missing
//   kInvalidArgument  a file has another size, another type or another shape, or is no file of NumPy's format
//   kUnavailable      a file cannot be read
absl::StatusOr<MappedShard> OpenShard(const Locate& locate, const PreparedShard& shard, const PreparedIndex& index);
// Opens one of both files: the result has pixels, or labels.
absl::StatusOr<MappedShard> OpenPixels(const Locate& locate, const PreparedShard& shard, const PreparedIndex& index,
                                       const FetchWatch& watch = nullptr);
absl::StatusOr<MappedShard> OpenLabels(const Locate& locate, const PreparedShard& shard);
// Returns the shard whose file of images is in memory.
//   kInvalidArgument  as OpenShard()
absl::StatusOr<MappedShard> PixelsInMemory(std::shared_ptr<const std::string> file, const PreparedShard& shard,
                                           const PreparedIndex& index);

// ShardSource gives access to shards that come and go.
//
// Thread-safety: safe, but for Fetch(), which one thread at a time calls.
class ShardSource {
 public:
  virtual ~ShardSource() = default;

  // Returns the pixels of a shard. Waits for them, or fails, if they are not here.
  //   as OpenPixels(), or the reason why the file cannot be had
  virtual absl::StatusOr<std::shared_ptr<const MappedShard>> Open(size_t shard) = 0;
  // Tells which shards the next images are in. A source that Open() does not wait for gets them now, and lets go of
  // others. `watch` may be null.
  //   as OpenPixels() and `watch`
  virtual absl::Status Fetch(const std::vector<bool>& wanted, const FetchWatch& watch) = 0;
  // True if shards are spread over nodes, and each range of samples lies within one.
  virtual bool spread() const = 0;
};

}  // namespace slackline::images
