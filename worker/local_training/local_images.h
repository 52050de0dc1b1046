// Chooses the images for the rounds of local training.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "worker/local_training/local_config.h"

namespace slackline::worker {

// A range of training data, as assigned to a worker.
struct LocalRange {
  WorkerId worker;
  RangeId range;
  uint32_t batch_size = 1;
  uint64_t seed = 1;          // seed of the job
  uint64_t train_images = 1;  // number of images in the whole training set
  // First image of each file, to draw subsets from as few files as hold them. Empty: from all images.
  absl::Span<const uint64_t> file_starts = {};
};

// Returns the images of the rounds of a range, one round after the other, cut into batches of range.batch_size.
//   images  the images of the range, in the epoch's order
// With steps, the result is as long as `images`, with LocalRoundSamples() images per round. With epochs, the range is
// one round, and each epoch visits its images in another order. A subset is drawn for each round; without a subset the
// images are those of the range. Equal arguments give equal images, on every platform.
std::vector<uint32_t> LocalImages(const LocalConfig& config, const LocalRange& range,
                                  absl::Span<const uint32_t> images);

// Returns the number of samples in a full round, if `left` samples of the range remain.
uint64_t LocalRoundSamples(const LocalConfig& config, uint32_t batch_size, uint64_t left);

}  // namespace slackline::worker
