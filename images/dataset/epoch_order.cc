#include <limits>
#include <map>
#include <numeric>

#include "common/check.h"
#include "images/base/random_order.h"
#include "images/dataset/dataset.h"

namespace slackline::images {

std::vector<uint32_t> EpochOrder(uint64_t size, uint64_t seed, uint32_t epoch) {
  SLACKLINE_CHECK(size <= std::numeric_limits<uint32_t>::max());
  std::vector<uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  // The seed is mixed before the epoch is added, so that seed 1 epoch 1 is not seed 2 epoch 0.
  SplitMix64 random(SplitMix64(seed).Next() + epoch);
  Shuffle(random, absl::MakeSpan(order));
  return order;
}

std::vector<uint32_t> BalancedOrder(absl::Span<const uint32_t> labels, uint64_t seed, uint32_t epoch) {
  const uint64_t size = labels.size();
  SLACKLINE_CHECK(size > 0 && size <= std::numeric_limits<uint32_t>::max());
  std::map<uint32_t, std::vector<uint32_t>> classes;
  for (uint32_t i = 0; i < size; ++i) classes[labels[i]].push_back(i);
  SplitMix64 random(SplitMix64(seed).Next() + epoch);
  // What the division leaves over goes to other classes in each epoch.
  std::vector<uint32_t> places(classes.size());
  std::iota(places.begin(), places.end(), 0);
  Shuffle(random, absl::MakeSpan(places));
  const uint64_t rounds_max = (uint64_t{std::numeric_limits<uint32_t>::max()} + 1) / size;
  std::vector<uint32_t> order;
  order.reserve(size);
  auto place = places.begin();
  for (auto& [label, images] : classes) {
    const uint64_t due = size / classes.size() + (*place++ < size % classes.size() ? 1 : 0);
    Shuffle(random, absl::MakeSpan(images));
    for (uint64_t i = 0; i < due; ++i) {
      const uint64_t round = i / images.size() % rounds_max;
      order.push_back(static_cast<uint32_t>(images[i % images.size()] + round * size));
    }
  }
  Shuffle(random, absl::MakeSpan(order));
  return order;
}

}  // namespace slackline::images
