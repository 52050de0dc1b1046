#include <limits>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "worker/data/dataset.h"

namespace slackline::worker {
namespace {

// SplitMix64 (Steele, Lea and Flood 2014). Written out here because std::shuffle and the standard distributions give
// other orders with other standard libraries.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Uniform in [0, bound), without the bias of a plain remainder: the incomplete last round of values is drawn again.
  uint64_t Below(uint64_t bound) {
    const uint64_t incomplete = (std::numeric_limits<uint64_t>::max() - bound + 1) % bound;
    uint64_t value = Next();
    while (value < incomplete) value = Next();
    return value % bound;
  }

 private:
  uint64_t state_;
};

}  // namespace

std::vector<uint32_t> EpochOrder(uint64_t size, uint64_t seed, uint32_t epoch) {
  SLACKLINE_CHECK(size <= std::numeric_limits<uint32_t>::max());
  std::vector<uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  // The seed is mixed before the epoch is added, so that seed 1 epoch 1 is not seed 2 epoch 0.
  SplitMix64 random(SplitMix64(seed).Next() + epoch);
  // Fisher and Yates, from the back.
  for (uint64_t left = size; left > 1; --left) std::swap(order[left - 1], order[random.Below(left)]);
  return order;
}

}  // namespace slackline::worker
