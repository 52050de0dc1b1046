// index.json of a folder of prepared images, which `slackline prepare` writes: what is in it, and in which files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline::worker {

inline constexpr char kPreparedIndexFile[] = "index.json";

struct PreparedFile {
  std::string name;  // in the folder
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3 over the whole file
};

// What a pixel is.
enum class PixelType {
  kUint8,    // 0 to 255
  kFloat16,  // 0 to 1
};
// As index.json and --dtype have it: "uint8", "float16".
absl::string_view NameOf(PixelType type);
// nullopt: no such type.
std::optional<PixelType> PixelTypeNamed(absl::string_view name);
inline constexpr char kPixelTypes[] = "uint8, float16";
inline uint64_t BytesOfPixel(PixelType type) { return type == PixelType::kUint8 ? 1 : 2; }

// Some images of a split: pixels, rows x channels x height x width; and their labels: int64, rows. Both are files of
// NumPy's format.
struct PreparedShard {
  PreparedFile images;
  PreparedFile labels;
  uint64_t rows = 0;
};

struct PreparedSplit {
  std::string name;  // train, validation or test
  std::vector<PreparedShard> shards;
  std::vector<uint64_t> class_counts;  // images by class

  uint64_t rows() const;
  // The shards, from the first on, that hold the first `images_max` images; 0: all.
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
  // Of the train split's pixels, by channel, where a pixel is 0..1. A channel without deviation has 0.
  std::vector<double> mean;
  std::vector<double> deviation;
  std::vector<PreparedSplit> splits;
  uint64_t skipped = 0;  // images that could not be read: skipped.csv
  std::string settings;  // JSON: what they were made of, and how

  uint64_t image_bytes() const { return shape.values() * BytesOfPixel(type); }
  // nullptr where there is none.
  const PreparedSplit* Find(absl::string_view split) const;
};

// XXH3 of what says which training images there are: classes, shape, type, and the shards' files with their checksums;
// of the first `images_max` images, 0 for all. Never 0.
uint64_t FingerprintOf(const PreparedIndex& index, uint64_t images_max);

// As index.json has it.
std::string ToJson(const PreparedIndex& index);

//   kInvalidArgument  no JSON, a later version, something missing or out of its range; says what
absl::StatusOr<PreparedIndex> ParsePreparedIndex(absl::string_view text);

// Reads `folder`/index.json.
//   kNotFound         no such file
//   kInvalidArgument  as above; names the file
absl::StatusOr<PreparedIndex> ReadPreparedIndex(const std::string& folder);

// Whether images of this type can be augmented so; `path`: where they are, in errors.
//   kInvalidArgument  RandAugment, which is of uint8 alone
absl::Status CheckAugmentable(PixelType type, uint32_t rand_augment, absl::string_view path);

// What one shard's record is made of, in index.json and wherever else.
std::string ShardJson(const PreparedShard& shard);
absl::StatusOr<PreparedShard> ParseShardJson(absl::string_view text);

}  // namespace slackline::worker
