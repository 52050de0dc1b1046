// Images with objects that are made when they are needed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/data/augment.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Thread-safety: safe.
class SceneSource {
 public:
  virtual ~SceneSource() = default;

  virtual uint64_t size() const = 0;
  // Replaces what is in `out` by image `index`.
  //   kDataLoss     neither it nor others in its place can be read; names the first
  virtual absl::Status Read(uint32_t index, Scene& out) const = 0;
};

// Left becomes right: of pixels, boxes and masks.
void FlipScene(Scene& scene);

// Images `indices` of `source` as batch.scenes. Of a variation they are flipped every other time, if it says so, with
// the draws that images without objects have; the rest of it does not count. An index of image + n x source.size() is
// the image once more, varied otherwise.
//   as SceneSource::Read()
absl::Status LoadScenes(const SceneSource& source, absl::Span<const uint32_t> indices, const Variation* variation,
                        Batch& batch);

}  // namespace slackline::worker
