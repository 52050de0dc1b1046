// Settings of a round of local training: `local` in the job file.
#pragma once

#include <cstdint>

#include "common/optimizer/optimizer.h"

namespace slackline::worker {

struct LocalConfig {
  // Length of a round. With local training, exactly one of the two is above 0.
  uint32_t steps = 0;
  uint32_t epochs = 0;
  // Number of images drawn for each round. 0: rounds use the images of their range.
  uint64_t subset_samples = 0;
  // Inner optimizer. Its learning rate is constant.
  OptimizerConfig optimizer = {};
  bool keep_state = false;

  bool on() const { return steps > 0 || epochs > 0; }
};

}  // namespace slackline::worker
