// PreparedIndex: index.json of a folder of prepared images, which `slackline prepare` writes. It lists the images and
// their files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline::images {

inline constexpr char kPreparedIndexFile[] = "index.json";

struct PreparedFile {
  std::string name;  // name in the folder
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3 over the whole file
};

// Type of a pixel.
enum class PixelType {
  kUint8,    // 0 to 255
  kFloat16,  // 0 to 1
};
// Returns the name of a type as in index.json and --dtype: "uint8", "float16".
absl::string_view NameOf(PixelType type);
// Returns the type of this name, or nullopt.
std::optional<PixelType> PixelTypeNamed(absl::string_view name);
inline constexpr char kPixelTypes[] = "uint8, float16";
inline uint64_t BytesOfPixel(PixelType type) { return type == PixelType::kUint8 ? 1 : 2; }

// Some images of a split: pixels, rows x channels x height x width, and labels, int64, rows. Both are NumPy files.
struct PreparedShard {
  PreparedFile images;
  PreparedFile labels;
  uint64_t rows = 0;
};

struct PreparedSplit {
  std::string name;  // train, validation or test
  std::vector<PreparedShard> shards;
  std::vector<uint64_t> class_counts;  // number of images by class

  uint64_t rows() const;
  // Returns the leading shards that hold the first `images_max` images; 0: all shards.
  absl::Span<const PreparedShard> ShardsOf(uint64_t images_max) const;
};

struct ImageShape {
  uint32_t channels = 0;
  uint32_t height = 0;
  uint32_t width = 0;

  uint64_t values() const { return uint64_t{channels} * height * width; }
  friend bool operator==(const ImageShape&, const ImageShape&) = default;
};

struct PreparedIndex {
  std::vector<std::string> classes;
  ImageShape shape;
  PixelType type = PixelType::kUint8;
  // Statistics of the train split's pixels, by channel, for pixels from 0 to 1. A constant channel has deviation 0.
  std::vector<double> mean;
  std::vector<double> deviation;
  std::vector<PreparedSplit> splits;
  uint64_t skipped = 0;  // images that could not be read; listed in skipped.csv
  std::string settings;  // JSON: the source of the images and the settings of `slackline prepare`

  uint64_t image_bytes() const { return shape.values() * BytesOfPixel(type); }
  // Returns the split of this name, or nullptr.
  const PreparedSplit* Find(absl::string_view split) const;
};

// Returns XXH3 of everything that identifies the training images: classes, shape, type, and the shards' files with
// their checksums, for the first `images_max` images; 0: all. Never 0.
uint64_t FingerprintOf(const PreparedIndex& index, uint64_t images_max);

// Returns the text of index.json.
std::string ToJson(const PreparedIndex& index);

// Parses the text of index.json.
//   kInvalidArgument  not JSON, a later version, a value that is missing or out of range; says which
absl::StatusOr<PreparedIndex> ParsePreparedIndex(absl::string_view text);

// Reads `folder`/index.json.
//   kNotFound         no such file
//   kInvalidArgument  as ParsePreparedIndex(); names the file
absl::StatusOr<PreparedIndex> ReadPreparedIndex(const std::string& folder);

// Checks that images of this type can be augmented. `path`: where the images are, for errors.
//   kInvalidArgument  RandAugment of a type other than uint8
absl::Status CheckAugmentable(PixelType type, uint32_t rand_augment, absl::string_view path);

// Returns the record of one shard, as in index.json and elsewhere.
std::string ShardJson(const PreparedShard& shard);
absl::StatusOr<PreparedShard> ParseShardJson(absl::string_view text);

}  // namespace slackline::images
