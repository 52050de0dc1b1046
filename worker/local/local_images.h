// Which images the rounds of local training are on.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "worker/local/local_config.h"

namespace slackline::worker {

// A range, as a worker has it.
struct LocalRange {
  WorkerId worker;
  RangeId range;
  uint32_t batch_size = 1;
  uint64_t seed = 1;          // the job's
  uint64_t train_images = 1;  // of the whole set
};

// What the rounds of a range train on, one round after the other, cut into batches of range.batch_size.
//   images  of the range, in the epoch's order
// With steps they are as many as `images`, LocalRoundSamples() of them a round; with epochs the range is one round, and
// each epoch goes through its images in another order. A subset is drawn for each round; without one the images are the
// range's own. Equal arguments give equal images, on every platform.
std::vector<uint32_t> LocalImages(const LocalConfig& config, const LocalRange& range,
                                  absl::Span<const uint32_t> images);

// Samples of a whole round, when its range trains `left` more.
uint64_t LocalRoundSamples(const LocalConfig& config, uint32_t batch_size, uint64_t left);

}  // namespace slackline::worker
