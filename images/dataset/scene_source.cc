#include "images/dataset/scene_source.h"

#include <algorithm>

namespace slackline::images {
namespace {

template <typename Value>
void FlipRows(std::vector<Value>& planes, uint32_t width) {
  for (auto row = planes.begin(); row != planes.end(); row += width) std::reverse(row, row + width);
}

}  // namespace

void FlipScene(Scene& scene) {
  FlipRows(scene.pixels, scene.width);
  FlipRows(scene.masks, scene.width);
  const auto width = static_cast<float>(scene.width);
  for (size_t i = 0; i < scene.boxes.size(); i += 4) {
    const float left = scene.boxes[i], right = scene.boxes[i + 2];
    scene.boxes[i] = width - right;
    scene.boxes[i + 2] = width - left;
  }
}

absl::Status LoadScenes(const SceneSource& source, absl::Span<const uint32_t> indices, const Variation* variation,
                        Batch& batch) {
  batch.images.clear();
  batch.labels.assign(indices.size(), 0);
  batch.scenes.resize(indices.size());
  const bool flips = variation != nullptr && variation->augment.flip_horizontal;
  for (size_t i = 0; i < indices.size(); ++i) {
    Scene& scene = batch.scenes[i];
    const absl::Status read = source.Read(static_cast<uint32_t>(indices[i] % source.size()), scene);
    if (!read.ok()) return read;
    if (flips && DrawsFor(*variation, indices[i]).Below(2) == 1) FlipScene(scene);
  }
  return absl::OkStatus();
}

}  // namespace slackline::images
