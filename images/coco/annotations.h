// Annotations in COCO's format, one JSON file per split.
//
//   file       := {"images": [image ...], "annotations": [annotation ...], "categories": [category ...], ...}
//   image      := {"id": N, "file_name": TEXT, "height": N, "width": N, ...}
//   annotation := {"image_id": N, "category_id": N, "bbox": [left, top, width, height], "iscrowd": 0 or 1,
//                  "segmentation": polygons or runs, ...}
//   polygons   := [[x, y, x, y, x, y ...] ...]
//   runs       := {"size": [height, width], "counts": [N ...] or TEXT}
//   category   := {"id": N, "name": TEXT, ...}
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "images/coco/mask.h"

namespace slackline::images::coco {

// Upper limit for the file's size. A larger file is treated as an attack on the memory.
inline constexpr uint64_t kAnnotationsBytesMax = uint64_t{4} << 30;
inline constexpr uint64_t kObjectsMax = 1000;  // per image; images with more objects are skipped
// per image, as objects x height x width; images with larger masks are skipped
inline constexpr uint64_t kMaskBytesMax = uint64_t{1} << 30;
inline constexpr uint32_t kSideMax = 65535;
inline constexpr double kOutlineMax = 1e7;  // largest outline of an object's polygons, in pixels

struct ObjectEntry {
  uint32_t category = 0;
  bool crowd = false;
  float box[4] = {};  // left, top, right, bottom; clipped to the image
  // Form of the object's mask, which tells where `begin` and `size` point: into numbers_ or into runs_.
  enum class Shape : uint8_t { kNone, kPolygons, kRuns } shape = Shape::kNone;
  uint32_t parts = 0;  // number of polygons, whose lengths are in lengths_
  uint64_t lengths = 0;
  uint64_t begin = 0;
  uint64_t size = 0;
};

struct ImageEntry {
  int64_t id = 0;
  std::string file;  // path below the folder of pictures
  uint32_t height = 0;
  uint32_t width = 0;
  std::vector<ObjectEntry> objects = {};
};

// Annotations holds everything that is known about one split.
//
// Thread-safety: const calls are safe.
class Annotations {
 public:
  struct Options {
    uint32_t classes = 0;  // every category is below this
    bool masks = false;    // skips objects without a mask
    bool crowds = false;   // keeps crowd annotations, which stand for several objects
  };

  // Reads a file. Skips annotations that are broken or belong to no image.
  //   kNotFound         the file does not exist
  //   kUnavailable      the file cannot be read
  //   kInvalidArgument  the file is not JSON, not in COCO's format or too large, has a category that is not below
  //                     `classes` or a broken image, or has no objects left; the message names the file
  static absl::StatusOr<Annotations> Read(const std::string& path, const Options& options);
  // Parses a text in the same way. Errors name no file.
  static absl::StatusOr<Annotations> Parse(absl::string_view text, const Options& options);

  // Images in the order of their ids.
  const std::vector<ImageEntry>& images() const { return images_; }
  const std::map<uint32_t, std::string>& categories() const { return categories_; }
  // Number of annotations and images that were skipped, and the reason for the first one.
  uint64_t skipped() const { return skipped_; }
  const std::string& first_skipped() const { return first_skipped_; }

  // Paints the object's mask. Requires: `canvas` is all zeros and has the image's size.
  void PaintMask(const ObjectEntry& object, const Canvas& canvas) const;

 private:
  friend class Reader;

  std::vector<ImageEntry> images_;
  std::map<uint32_t, std::string> categories_;
  uint64_t skipped_ = 0;
  std::string first_skipped_;
  std::vector<int32_t> numbers_;   // coordinates of polygons, in fifths of a pixel
  std::vector<uint32_t> lengths_;  // number of coordinates of each polygon
  std::vector<uint32_t> runs_;
};

}  // namespace slackline::images::coco
