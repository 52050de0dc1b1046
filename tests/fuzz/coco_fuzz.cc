// Annotations in COCO's format: refused with a reason, or images with objects inside of them, whose masks can be
// painted.
#include <string>
#include <vector>

#include "common/base/check.h"
#include "images/coco/annotations.h"

namespace {

constexpr uint64_t kPixelsPainted = 1 << 16;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace coco = slackline::images::coco;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto read = coco::Annotations::Parse(text, {.classes = 100, .masks = true, .crowds = true});
  if (!read.ok()) {
    SLACKLINE_CHECK(absl::IsInvalidArgument(read.status()) && !read.status().message().empty());
    return 0;
  }
  for (const coco::ImageEntry& image : read->images()) {
    const uint64_t pixels = uint64_t{image.height} * image.width;
    for (const coco::ObjectEntry& object : image.objects) {
      SLACKLINE_CHECK(object.box[0] >= 0 && object.box[0] < object.box[2] && object.box[2] <= image.width &&
                      object.box[1] >= 0 && object.box[1] < object.box[3] && object.box[3] <= image.height &&
                      read->categories().contains(object.category));
      if (pixels > kPixelsPainted) continue;
      std::vector<uint8_t> mask(pixels);
      read->PaintMask(object, {.height = image.height, .width = image.width, .pixels = absl::MakeSpan(mask)});
      for (const uint8_t pixel : mask) SLACKLINE_CHECK(pixel <= 1);
    }
  }
  return 0;
}
