#include <limits>
#include <numeric>

#include "common/check.h"
#include "worker/data/dataset.h"
#include "worker/data/random_order.h"

namespace slackline::worker {

std::vector<uint32_t> EpochOrder(uint64_t size, uint64_t seed, uint32_t epoch) {
  SLACKLINE_CHECK(size <= std::numeric_limits<uint32_t>::max());
  std::vector<uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  // The seed is mixed before the epoch is added, so that seed 1 epoch 1 is not seed 2 epoch 0.
  SplitMix64 random(SplitMix64(seed).Next() + epoch);
  Shuffle(random, absl::MakeSpan(order));
  return order;
}

}  // namespace slackline::worker
