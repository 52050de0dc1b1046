#include "worker/local_training/local_images.h"

#include <algorithm>
#include <unordered_set>

#include "common/base/check.h"
#include "common/base/split_mix.h"
#include "images/base/random_order.h"

namespace slackline::worker {
namespace {

// Of one round: mixed step by step, so that no two of them add up to a third.
SplitMix64 RandomOf(const LocalRange& range, uint64_t round) {
  uint64_t state = range.seed;
  for (const uint64_t part : {uint64_t{range.worker.value()}, uint64_t{range.range.value()}, round}) {
    state = SplitMix64(state).Next() + part;
  }
  return SplitMix64(SplitMix64(state).Next());
}

// `count` different ones of `size` images (Floyd; Bentley and Floyd 1987), in random order.
std::vector<uint32_t> Draw(uint64_t count, uint64_t size, SplitMix64& random) {
  std::vector<uint32_t> drawn;
  std::unordered_set<uint32_t> taken;
  for (uint64_t last = size - count; last < size; ++last) {
    const auto image = static_cast<uint32_t>(random.Below(last + 1));
    drawn.push_back(taken.insert(image).second ? image : static_cast<uint32_t>(last));
    taken.insert(drawn.back());
  }
  images::Shuffle(random, absl::MakeSpan(drawn));
  return drawn;
}

}  // namespace

uint64_t LocalRoundSamples(const LocalConfig& config, uint32_t batch_size, uint64_t left) {
  return config.epochs > 0 ? left : std::min(left, uint64_t{config.steps} * batch_size);
}

std::vector<uint32_t> LocalImages(const LocalConfig& config, const LocalRange& range,
                                  absl::Span<const uint32_t> images) {
  SLACKLINE_CHECK(config.on());
  std::vector<uint32_t> rounds;
  for (uint64_t begin = 0; begin < images.size();) {
    const uint64_t size = LocalRoundSamples(config, range.batch_size, images.size() - begin);
    SplitMix64 random = RandomOf(range, begin);
    const absl::Span<const uint32_t> own = images.subspan(begin, size);
    std::vector<uint32_t> task(own.begin(), own.end());
    if (config.subset_samples > 0) {
      // A range that the end of an epoch has cut counts for as many epochs as it has images.
      const uint64_t subset = config.epochs > 0 ? std::min(size, config.subset_samples) : config.subset_samples;
      task = Draw(std::min(subset, range.train_images), range.train_images, random);
    }
    const uint64_t end = rounds.size() + (config.epochs > 0 ? task.size() * config.epochs : size);
    while (rounds.size() < end) {
      const uint64_t more = std::min<uint64_t>(task.size(), end - rounds.size());
      rounds.insert(rounds.end(), task.begin(), task.begin() + static_cast<int64_t>(more));
      images::Shuffle(random, absl::MakeSpan(task));
    }
    begin += size;
  }
  return rounds;
}

}  // namespace slackline::worker
