#include "worker/local_training/local_images.h"

#include <algorithm>
#include <numeric>
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

// Returns `count` different ones of the range's images in random order: all images of some files, and some of one more.
std::vector<uint32_t> DrawFromFiles(uint64_t count, const LocalRange& range, SplitMix64& random) {
  std::vector<uint32_t> files(range.file_starts.size());
  std::iota(files.begin(), files.end(), 0);
  images::Shuffle(random, absl::MakeSpan(files));
  std::vector<uint32_t> drawn;
  for (size_t i = 0; drawn.size() < count; ++i) {
    const size_t file = files[i];
    const size_t begin = drawn.size();
    const uint64_t end = file + 1 < files.size() ? range.file_starts[file + 1] : range.train_images;
    for (uint64_t image = range.file_starts[file]; image < end; ++image) drawn.push_back(static_cast<uint32_t>(image));
    images::Shuffle(random, absl::MakeSpan(drawn).subspan(begin));
  }
  drawn.resize(count);
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
      const uint64_t count = std::min(subset, range.train_images);
      task = range.file_starts.empty() ? Draw(count, range.train_images, random) : DrawFromFiles(count, range, random);
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
