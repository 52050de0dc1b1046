#include "images/augment/mix_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "images/dataset/dataset.h"
#include "tests/images/test_data.h"

namespace slackline::images::mix_batch_test {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr size_t kSide = 12, kPixels = kSide * kSide;

class MixBatchTest : public ::testing::Test {
 protected:
  MixBatchTest() {
    WriteImages(folder_.path(), "train", 8, kSide);
    data_ = *Dataset::ReadIdx(folder_.path(), "train");
  }

  Batch Load(const std::vector<uint32_t>& images, const Augment& augment, uint32_t epoch = 0) const {
    const Variation variation{.augment = augment, .seed = 5, .epoch = epoch};
    Batch batch;
    EXPECT_TRUE(data_.Load(images, 0.2, 0.5, batch, &variation).ok());
    return batch;
  }

  TemporaryFolder folder_;
  Dataset data_;
};

TEST_F(MixBatchTest, MixupMixesEachImageWithTheOneBefore) {
  const std::vector<uint32_t> images = {3, 0, 7, 5};
  const Batch plain = Load(images, {}), mixed = Load(images, {.mixup_alpha = 1});
  EXPECT_TRUE(plain.other_labels.empty());
  EXPECT_EQ(mixed.labels, plain.labels);
  EXPECT_THAT(mixed.other_labels, ElementsAre(plain.labels[3], plain.labels[0], plain.labels[1], plain.labels[2]));
  EXPECT_GT(mixed.share, 0);
  EXPECT_LT(mixed.share, 1);
  std::vector<float> expected;
  for (size_t i = 0; i < 4; ++i) {
    for (size_t p = 0; p < kPixels; ++p) {
      const float own = plain.images[i * kPixels + p], other = plain.images[(i + 3) % 4 * kPixels + p];
      expected.push_back(mixed.share * own + (1 - mixed.share) * other);
    }
  }
  EXPECT_THAT(mixed.images, Pointwise(FloatNear(1e-6f), expected));
}

TEST_F(MixBatchTest, CutMixPutsABoxOfTheOneBeforeIntoEach) {
  const std::vector<uint32_t> images = {1, 2, 6};
  const Batch plain = Load(images, {});
  bool some = false;
  for (uint32_t epoch = 0; epoch < 20; ++epoch) {
    const Batch mixed = Load(images, {.cutmix_alpha = 1}, epoch);
    // Which pixels are another's, all images say alike.
    std::vector<bool> cut(kPixels, false);
    for (size_t i = 0; i < 3; ++i) {
      for (size_t p = 0; p < kPixels; ++p) {
        const float now = mixed.images[i * kPixels + p], own = plain.images[i * kPixels + p];
        if (now == own) continue;
        cut[p] = true;
        EXPECT_EQ(now, plain.images[(i + 2) % 3 * kPixels + p]);
      }
    }
    size_t left = kSide, right = 0, top = kSide, bottom = 0;
    for (size_t p = 0; p < kPixels; ++p) {
      if (!cut[p]) continue;
      left = std::min(left, p % kSide);
      right = std::max(right, p % kSide + 1);
      top = std::min(top, p / kSide);
      bottom = std::max(bottom, p / kSide + 1);
    }
    const size_t box = left < right ? (right - left) * (bottom - top) : 0;
    EXPECT_NEAR(1 - mixed.share, static_cast<double>(box) / kPixels, 1e-6);
    some |= box > 0;
  }
  EXPECT_TRUE(some);
}

TEST_F(MixBatchTest, WhatIsDrawnFollowsFromSeedEpochAndBatch) {
  const Augment both{.mixup_alpha = 0.4, .cutmix_alpha = 1};
  const Batch first = Load({1, 2, 3}, both), again = Load({1, 2, 3}, both);
  EXPECT_EQ(first.images, again.images);
  EXPECT_EQ(first.share, again.share);
  EXPECT_NE(Load({1, 2, 3}, both, 1).share, first.share);
  EXPECT_NE(Load({2, 1, 3}, both).share, first.share);
}

TEST_F(MixBatchTest, ABatchThatIsNotMixedForgetsHowTheLastOneWas) {
  Batch batch = Load({1, 2}, {.mixup_alpha = 1});
  ASSERT_TRUE(data_.Load({4}, 0, 1, batch).ok());
  EXPECT_TRUE(batch.other_labels.empty());
  EXPECT_EQ(batch.share, 1);
}

TEST(DrawBeta, HasTheMeanAndTheVarianceOfBeta) {
  for (const double alpha : {0.001, 0.2, 1.0, 4.0, 100.0}) {
    SplitMix64 random(9);
    constexpr int kDraws = 20000;
    double sum = 0, square_sum = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double x = DrawBeta(random, alpha);
      ASSERT_TRUE(x >= 0 && x <= 1) << alpha;
      sum += x;
      square_sum += x * x;
    }
    const double mean = sum / kDraws, variance = square_sum / kDraws - mean * mean;
    EXPECT_NEAR(mean, 0.5, 0.012) << alpha;
    EXPECT_NEAR(variance, 1 / (4 * (2 * alpha + 1)), 0.005) << alpha;
  }
}

}  // namespace
}  // namespace slackline::images::mix_batch_test
