#include "worker/local_training/local_images.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::worker::local_images_test {
namespace {

using testing::IsSubsetOf;
using testing::UnorderedElementsAreArray;

constexpr LocalRange kRange = {
    .worker = WorkerId(2), .range = RangeId(7), .batch_size = 5, .seed = 3, .train_images = 100};

std::vector<uint32_t> Numbers(uint32_t from, uint32_t count) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), from);
  return numbers;
}

std::vector<uint32_t> Part(const std::vector<uint32_t>& images, size_t begin, size_t size) {
  return {images.begin() + static_cast<std::ptrdiff_t>(begin),
          images.begin() + static_cast<std::ptrdiff_t>(begin + size)};
}

TEST(LocalImages, StepsAreOnTheRangesImagesInTheirOrder) {
  EXPECT_EQ(LocalImages({.steps = 4}, kRange, Numbers(30, 45)), Numbers(30, 45));
}

TEST(LocalImages, EpochsGoThroughTheTaskInAnotherOrderEachTime) {
  const std::vector<uint32_t> task = Numbers(30, 12), images = LocalImages({.epochs = 3}, kRange, task);
  ASSERT_EQ(images.size(), 36u);
  EXPECT_EQ(Part(images, 0, 12), task);
  for (const size_t epoch : {1, 2}) EXPECT_THAT(Part(images, 12 * epoch, 12), UnorderedElementsAreArray(task));
  EXPECT_NE(Part(images, 12, 12), Part(images, 24, 12));
}

TEST(LocalImages, SubsetIsDrawnAnewForEachRoundWorkerAndSeed) {
  const LocalConfig config = {.epochs = 2, .subset_samples = 20};
  const std::vector<uint32_t> order = Numbers(0, 20);
  const std::vector<uint32_t> images = LocalImages(config, kRange, order);
  ASSERT_EQ(images.size(), 40u);
  const std::vector<uint32_t> task = Part(images, 0, 20);
  EXPECT_EQ(std::set(task.begin(), task.end()).size(), 20u) << "different ones";
  EXPECT_THAT(task, IsSubsetOf(Numbers(0, 100)));
  EXPECT_THAT(Part(images, 20, 20), UnorderedElementsAreArray(task));
  EXPECT_EQ(LocalImages(config, kRange, order), images);
  for (int changed = 0; changed < 3; ++changed) {
    LocalRange other = kRange;
    if (changed == 0) other.worker = WorkerId(3);
    if (changed == 1) other.range = RangeId(8);
    if (changed == 2) other.seed = 4;
    EXPECT_NE(LocalImages(config, other, order), images) << changed;
  }
}

TEST(LocalImages, StepsGoOverTheirSubsetAgainAndTheNextRoundHasAnother) {
  // Rounds of 4 x 5 samples on 8 images; the last one is shorter.
  const std::vector<uint32_t> images = LocalImages({.steps = 4, .subset_samples = 8}, kRange, Numbers(0, 50));
  ASSERT_EQ(images.size(), 50u);
  std::set<std::set<uint32_t>> subsets;
  for (const size_t round : {0, 1, 2}) {
    const std::vector<uint32_t> task = Part(images, 20 * round, 8);
    const std::vector<uint32_t> all = Part(images, 20 * round, round == 2 ? 10 : 20);
    subsets.insert({task.begin(), task.end()});
    EXPECT_EQ(subsets.rbegin()->size(), 8u);
    EXPECT_EQ(std::set(all.begin(), all.end()), std::set(task.begin(), task.end()));
  }
  EXPECT_EQ(subsets.size(), 3u);
}

TEST(LocalImages, EveryImageIsDrawnAsOftenAsAnyOther) {
  std::vector<int> drawn(100);
  for (uint64_t range = 1; range <= 2000; ++range) {
    LocalRange one = kRange;
    one.range = RangeId(range);
    for (const uint32_t image : LocalImages({.epochs = 1, .subset_samples = 20}, one, Numbers(0, 20))) ++drawn[image];
  }
  // 400 expected each, with a deviation of 18.
  EXPECT_GT(*std::min_element(drawn.begin(), drawn.end()), 400 - 5 * 18);
  EXPECT_LT(*std::max_element(drawn.begin(), drawn.end()), 400 + 5 * 18);
}

TEST(LocalImages, SubsetsByFileHaveAsFewFilesAsHoldThem) {
  const std::vector<uint64_t> starts = {0, 10, 20, 30, 40, 50, 60, 70, 80, 90};
  std::vector<int> drawn(100);
  for (uint64_t range = 1; range <= 2000; ++range) {
    LocalRange one = kRange;
    one.range = RangeId(range);
    one.file_starts = starts;
    const std::vector<uint32_t> images = LocalImages({.epochs = 1, .subset_samples = 25}, one, Numbers(0, 25));
    EXPECT_EQ(std::set(images.begin(), images.end()).size(), 25u);
    std::set<uint32_t> files;
    for (const uint32_t image : images) {
      ++drawn[image];
      files.insert(image / 10);
    }
    EXPECT_EQ(files.size(), 3u);
  }
  // 500 expected each, with a deviation of 19.
  EXPECT_GT(*std::min_element(drawn.begin(), drawn.end()), 500 - 5 * 19);
  EXPECT_LT(*std::max_element(drawn.begin(), drawn.end()), 500 + 5 * 19);
}

TEST(LocalImages, SubsetOfMoreThanThereIsIsAllOfIt) {
  LocalRange small = kRange;
  small.train_images = 6;
  const std::vector<uint32_t> images = LocalImages({.steps = 2, .subset_samples = 50}, small, Numbers(0, 6));
  EXPECT_THAT(images, UnorderedElementsAreArray(Numbers(0, 6)));
}

}  // namespace
}  // namespace slackline::worker::local_images_test
