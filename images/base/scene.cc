#include "images/base/scene.h"

#include "absl/strings/str_cat.h"

namespace slackline::images {

absl::Status CheckScene(const Scene& scene, uint32_t classes) {
  const uint64_t plane = uint64_t{scene.height} * scene.width;
  const uint64_t masks = scene.has_masks ? scene.objects() * plane : 0;
  if (scene.pixels.empty() || scene.pixels.size() != scene.channels * plane ||
      scene.boxes.size() != 4 * scene.objects() || scene.masks.size() != masks ||
      (!scene.crowd.empty() && scene.crowd.size() != scene.objects())) {
    return absl::InvalidArgumentError(
        absl::StrCat("an image of ", scene.channels, " x ", scene.height, " x ", scene.width, " with ", scene.objects(),
                     " objects has ", scene.pixels.size(), " pixels, ", scene.boxes.size(), " numbers of boxes, ",
                     scene.masks.size(), " pixels of masks and ", scene.crowd.size(), " marks of crowds"));
  }
  for (const int64_t label : scene.labels) {
    if (label >= 0 && label < classes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("label ", label, " of an object is not below the model's ", classes, " classes"));
  }
  return absl::OkStatus();
}

}  // namespace slackline::images
