// Images of any size with objects on them, and what a network finds there.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace slackline::worker {

// An image and its objects, of which there may be none.
struct Scene {
  uint32_t channels = 0;
  uint32_t height = 0;
  uint32_t width = 0;
  std::vector<float> pixels;    // channels x height x width, 0 to 1
  std::vector<float> boxes;     // objects x 4: left, top, right, bottom, in pixels
  std::vector<int64_t> labels;  // of the objects
  // An object that stands for several, uncounted ones; evaluations pass over what is found there. Empty: none does.
  std::vector<uint8_t> crowd;
  // Where has_masks: objects x height x width, 1 where the object is.
  bool has_masks = false;
  std::vector<uint8_t> masks;

  uint64_t objects() const { return labels.size(); }
};

// Of one image.
struct Found {
  std::vector<float> boxes;  // as Scene has them
  std::vector<int64_t> labels;
  std::vector<float> scores;
  bool has_masks = false;
  std::vector<uint8_t> masks;
};

// What a network with labels up to `classes`, this one not, can take.
//   kInvalidArgument  a label is not below `classes`; sizes do not fit each other
absl::Status CheckScene(const Scene& scene, uint32_t classes);

}  // namespace slackline::worker
