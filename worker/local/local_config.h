// What a round of local training is: `local` of the job file.
#pragma once

#include <cstdint>

#include "common/optimizer/optimizer.h"

namespace slackline::worker {

struct LocalConfig {
  // Exactly one of both is above 0 where there is local training.
  uint32_t steps = 0;
  uint32_t epochs = 0;
  // 0: rounds are on the images of their range.
  uint64_t subset_samples = 0;
  // The inner optimizer; its learning rate is constant.
  OptimizerConfig optimizer = {};
  bool keep_state = false;

  bool on() const { return steps > 0 || epochs > 0; }
};

}  // namespace slackline::worker
