// Batch: images and labels of one step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "images/base/batch_memory.h"
#include "images/base/scene.h"

namespace slackline::images {

// Prepared images: normalised float32, n x channels x height x width. With several views, the first view of all images
// comes first, then the second.
struct Batch {
  BatchFloats images;
  std::vector<int64_t> labels;
  // Seed of the batch, a hash of its images in their order. Together with the model's seed, it determines what dropout
  // leaves out.
  uint64_t noise = 0;
  // Weight of `labels` in mixed images, and the labels with the remaining weight. Empty: `labels` have the whole
  // weight.
  float share = 1;
  std::vector<int64_t> other_labels = {};
  // Images with objects, one for each label. Then `images` is empty, and the labels have no meaning.
  std::vector<Scene> scenes = {};
  // Number of views of each image.
  uint32_t views = 1;
  uint64_t size() const { return labels.size(); }
};

// Creates an empty batch whose images are in `memory`; null: ordinary memory.
inline std::unique_ptr<Batch> NewBatch(BatchMemory* memory) {
  auto batch = std::make_unique<Batch>();
  batch->images = BatchFloats(BatchAllocator<float>(memory));
  return batch;
}

}  // namespace slackline::images
