// Images of any size with objects on them, and the objects that a network finds.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace slackline::images {

// An image and its objects. There may be no objects.
struct Scene {
  uint32_t channels = 0;
  uint32_t height = 0;
  uint32_t width = 0;
  std::vector<float> pixels;    // channels x height x width, 0 to 1
  std::vector<float> boxes;     // objects x 4: left, top, right, bottom, in pixels
  std::vector<int64_t> labels;  // labels of the objects
  // Nonzero for an object that stands for several, uncounted ones. Evaluations ignore what is found there. Empty: no
  // object does.
  std::vector<uint8_t> crowd;
  // Masks, if has_masks: objects x height x width, 1 inside the object.
  bool has_masks = false;
  std::vector<uint8_t> masks;

  uint64_t objects() const { return labels.size(); }
};

// Objects found on one image.
struct DetectedObjects {
  std::vector<float> boxes;  // format of Scene::boxes
  std::vector<int64_t> labels;
  std::vector<float> scores;
  bool has_masks = false;
  std::vector<uint8_t> masks;
};

// Checks that a network with labels below `classes` can process the scene.
//   kInvalidArgument  a label is not below `classes`; sizes do not match each other
absl::Status CheckScene(const Scene& scene, uint32_t classes);

}  // namespace slackline::images
