// SceneSource: images with objects, produced on demand.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "images/augment/augment.h"
#include "images/base/batch.h"

namespace slackline::images {

// SceneSource reads single images of a data set.
//
// Thread-safety: safe.
class SceneSource {
 public:
  virtual ~SceneSource() = default;

  virtual uint64_t size() const = 0;
  // Replaces `out` with image `index`.
  //   kDataLoss     neither the image nor others in its place can be read; names the first
  virtual absl::Status Read(uint32_t index, Scene& out) const = 0;
};

// Mirrors pixels, boxes and masks horizontally.
void FlipScene(Scene& scene);

// Loads images `indices` of `source` into batch.scenes. With a variation that has flip_horizontal, each image is
// flipped with probability 1/2, by the draws that images without objects use. The variation's other settings are
// ignored. Index `image + n x source.size()` is the same image again, varied differently.
//   as SceneSource::Read()
absl::Status LoadScenes(const SceneSource& source, absl::Span<const uint32_t> indices, const Variation* variation,
                        Batch& batch);

}  // namespace slackline::images
