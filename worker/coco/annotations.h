// Annotations in COCO's format, one file of JSON a split.
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
#include "worker/coco/mask.h"

namespace slackline::worker::coco {

// More are taken for an attack on the memory.
inline constexpr uint64_t kAnnotationsBytesMax = uint64_t{4} << 30;
inline constexpr uint64_t kObjectsMax = 1000;                 // of an image; one with more is passed over
inline constexpr uint64_t kMaskBytesMax = uint64_t{1} << 30;  // likewise: objects x height x width
inline constexpr uint32_t kSideMax = 65535;
inline constexpr double kOutlineMax = 1e7;  // pixels, of an object's polygons

struct ObjectEntry {
  uint32_t category = 0;
  bool crowd = false;
  float box[4] = {};  // left, top, right, bottom; inside of the image
  // Where its mask is: of numbers_ or runs_.
  enum class Shape : uint8_t { kNone, kPolygons, kRuns } shape = Shape::kNone;
  uint32_t parts = 0;  // polygons, whose lengths stand in lengths_
  uint64_t lengths = 0;
  uint64_t begin = 0;
  uint64_t size = 0;
};

struct ImageEntry {
  int64_t id = 0;
  std::string file;  // below the folder of pictures
  uint32_t height = 0;
  uint32_t width = 0;
  std::vector<ObjectEntry> objects = {};
};

// What is known of a split.
//
// Thread-safety: const calls are safe.
class Annotations {
 public:
  struct Options {
    uint32_t classes = 0;  // categories are below
    bool masks = false;    // objects without a mask are passed over
    bool crowds = false;   // keeps objects that stand for several
  };

  // Annotations that are broken, or of no image, are passed over.
  //   kNotFound         no such file
  //   kUnavailable      it cannot be read
  //   kInvalidArgument  no JSON, none of COCO's, too large, a category that is not below `classes`, an image that is
  //                     broken, none that is left; names the file
  static absl::StatusOr<Annotations> Read(const std::string& path, const Options& options);
  // The same of a text; errors do not name it.
  static absl::StatusOr<Annotations> Parse(absl::string_view text, const Options& options);

  // By their ids.
  const std::vector<ImageEntry>& images() const { return images_; }
  const std::map<uint32_t, std::string>& categories() const { return categories_; }
  // Annotations and images that were passed over, and what is wrong with the first.
  uint64_t skipped() const { return skipped_; }
  const std::string& first_skipped() const { return first_skipped_; }

  // Requires: zeros, of the image's size.
  void PaintMask(const ObjectEntry& object, const Canvas& canvas) const;

 private:
  friend class Reader;

  std::vector<ImageEntry> images_;
  std::map<uint32_t, std::string> categories_;
  uint64_t skipped_ = 0;
  std::string first_skipped_;
  std::vector<int32_t> numbers_;   // of polygons, in fifths of a pixel
  std::vector<uint32_t> lengths_;  // numbers of each polygon
  std::vector<uint32_t> runs_;
};

}  // namespace slackline::worker::coco
