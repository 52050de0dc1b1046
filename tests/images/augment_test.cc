#include "images/augment/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "images/augment/rand_augment.h"
#include "images/dataset/prefetcher.h"
#include "tests/images/test_data.h"

namespace slackline::images::augment_test {
namespace {

constexpr ImageShape kShape{.channels = 3, .height = 6, .width = 8};

// `image` of `kShape` after the variation.
Bytes Varied(const Bytes& image, const Augment& augment, uint32_t number, uint32_t epoch = 0, uint64_t seed = 1) {
  Augmenter augmenter({.augment = augment, .seed = seed, .epoch = epoch}, kShape);
  const uint8_t* out = augmenter.Apply(image.data(), number);
  return {out, out + kShape.values()};
}

uint8_t At(const Bytes& image, uint32_t c, uint32_t y, uint32_t x) {
  return image[(c * kShape.height + y) * kShape.width + x];
}

Bytes Mirrored(Bytes image) {
  for (auto row = image.begin(); row != image.end(); row += kShape.width) std::reverse(row, row + kShape.width);
  return image;
}

Bytes UpsideDown(const Bytes& image) {
  Bytes out;
  for (uint32_t c = 0; c < kShape.channels; ++c) {
    for (uint32_t y = kShape.height; y-- > 0;) {
      for (uint32_t x = 0; x < kShape.width; ++x) out.push_back(At(image, c, y, x));
    }
  }
  return out;
}

TEST(Augment, WithoutItAnImageIsItself) {
  const Bytes image = Noise(kShape.values());
  Augmenter augmenter({}, kShape);
  EXPECT_EQ(augmenter.Apply(image.data(), 3), image.data());
}

TEST(Augment, HalfOfTheImagesAreFlipped) {
  const Bytes image = Noise(kShape.values());
  int mirrored = 0, upside_down = 0;
  for (uint32_t i = 0; i < 1000; ++i) {
    const Bytes one = Varied(image, {.flip_horizontal = true}, i);
    EXPECT_TRUE(one == image || one == Mirrored(image));
    mirrored += one == image ? 0 : 1;
    const Bytes other = Varied(image, {.flip_vertical = true}, i);
    EXPECT_TRUE(other == image || other == UpsideDown(image));
    upside_down += other == image ? 0 : 1;
  }
  EXPECT_NEAR(mirrored, 500, 80);
  EXPECT_NEAR(upside_down, 500, 80);
}

TEST(Augment, PaddingMovesTheImageAndLeavesBlack) {
  Bytes image = Noise(kShape.values());
  for (uint8_t& value : image) value = std::max<uint8_t>(value, 1);
  std::set<std::pair<int, int>> moves;
  for (uint32_t i = 0; i < 2000; ++i) {
    const Bytes one = Varied(image, {.crop_padding = 2}, i);
    int found = 0;
    for (int down = -2; down <= 2; ++down) {
      for (int right = -2; right <= 2; ++right) {
        bool same = true;
        for (int c = 0; c < 3; ++c) {
          for (int y = 0; y < 6; ++y) {
            for (int x = 0; x < 8; ++x) {
              const bool inside = y - down >= 0 && y - down < 6 && x - right >= 0 && x - right < 8;
              same = same && At(one, c, y, x) == (inside ? At(image, c, y - down, x - right) : 0);
            }
          }
        }
        if (same) {
          ++found;
          moves.insert({down, right});
        }
      }
    }
    ASSERT_EQ(found, 1) << i;
  }
  EXPECT_EQ(moves.size(), 25u);
}

TEST(Augment, PaddingBeyondTheImageLeavesNothingOfIt) {
  const Bytes image(kShape.values(), 9);
  int black = 0;
  for (uint32_t i = 0; i < 200; ++i)
    black += Varied(image, {.crop_padding = 100}, i) == Bytes(kShape.values(), 0) ? 1 : 0;
  EXPECT_GT(black, 100);
}

TEST(Augment, ResizedCropIsAPartOfTheImage) {
  // A slope: any part of it is one, with a smaller step, and its values are those of its place.
  Bytes image(kShape.values());
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<uint8_t>(20 * (i % kShape.width));
  std::set<Bytes> all;
  for (uint32_t i = 0; i < 200; ++i) {
    const Bytes one = Varied(image, {.crop_area_min = 0.2}, i);
    for (uint32_t x = 0; x + 1 < kShape.width; ++x) {
      EXPECT_LE(At(one, 0, 0, x), At(one, 0, 0, x + 1));
      EXPECT_LE(At(one, 0, 0, x + 1) - At(one, 0, 0, x), 21);
    }
    for (uint32_t y = 1; y < kShape.height; ++y) EXPECT_EQ(At(one, 2, y, 3), At(one, 0, 0, 3));
    all.insert(one);
  }
  EXPECT_GT(all.size(), 10u);
  // Its parts are as large as they are to be: of an even image nothing is seen.
  EXPECT_EQ(Varied(Bytes(kShape.values(), 77), {.crop_area_min = 0.05}, 1), Bytes(kShape.values(), 77));
}

TEST(Augment, ColoursStayWithinTheirFactors) {
  const Bytes image(kShape.values(), 100);
  std::set<uint8_t> values;
  for (uint32_t i = 0; i < 500; ++i) {
    const Bytes one = Varied(image, {.brightness = 0.3}, i);
    EXPECT_EQ(*std::min_element(one.begin(), one.end()), *std::max_element(one.begin(), one.end()));
    values.insert(one[0]);
  }
  EXPECT_GE(*values.begin(), 70);
  EXPECT_LE(*values.rbegin(), 130);
  EXPECT_GT(values.size(), 40u);
  // What has no contrast and no colour keeps it so.
  EXPECT_EQ(Varied(image, {.contrast = 0.9, .saturation = 0.9}, 4), image);
}

TEST(Augment, ContrastAndSaturationGoAwayFromGrey) {
  Bytes image(kShape.values(), 50);
  for (size_t i = 0; i < kShape.values() / 3; ++i) image[i] = 200;  // red
  const int difference = 150;
  std::set<int> contrasts;
  for (uint32_t i = 0; i < 50; ++i) {
    const Bytes one = Varied(image, {.saturation = 0.5}, i);
    const int left = At(one, 0, 0, 0) - At(one, 1, 0, 0);
    EXPECT_GE(left, difference / 2 - 2);
    EXPECT_LE(left, difference * 3 / 2 + 2);
    contrasts.insert(left);
  }
  EXPECT_GT(contrasts.size(), 20u);
}

TEST(Augment, FollowsFromSeedEpochAndImageAlone) {
  const Bytes image = Noise(kShape.values());
  const Augment all{.flip_horizontal = true,
                    .flip_vertical = true,
                    .crop_padding = 3,
                    .crop_area_min = 0.3,
                    .brightness = 0.4,
                    .contrast = 0.4,
                    .saturation = 0.4};
  const Bytes first = Varied(image, all, 5, 2, 7);
  EXPECT_EQ(Varied(image, all, 5, 2, 7), first);
  EXPECT_NE(Varied(image, all, 6, 2, 7), first);
  EXPECT_NE(Varied(image, all, 5, 3, 7), first);
  EXPECT_NE(Varied(image, all, 5, 2, 8), first);
  // Whatever came before it.
  Augmenter augmenter({.augment = all, .seed = 7, .epoch = 2}, kShape);
  for (const uint32_t other : {1u, 9u, 5u}) augmenter.Apply(image.data(), other);
  const uint8_t* again = augmenter.Apply(image.data(), 5);
  EXPECT_EQ(Bytes(again, again + kShape.values()), first);
}

TEST(Augment, ViewsDifferAndFollowFromTheirNumber) {
  const Bytes image = Noise(kShape.values());
  const Augment all{.crop_padding = 3, .crop_area_min = 0.3, .brightness = 0.4};
  Augmenter augmenter({.augment = all, .seed = 7, .epoch = 2}, kShape);
  const auto view = [&](uint32_t number, uint32_t of) {
    const uint8_t* out = augmenter.Apply(image.data(), number, of);
    return Bytes(out, out + kShape.values());
  };
  std::set<Bytes> seen;
  for (uint32_t number = 0; number < 20; ++number) {
    for (uint32_t of = 0; of < 4; ++of) seen.insert(view(number, of));
  }
  EXPECT_EQ(seen.size(), 80u);
  EXPECT_EQ(view(5, 0), Varied(image, all, 5, 2, 7));
  EXPECT_EQ(view(5, 3), view(5, 3));
}

TEST(Augment, ABatchHasTheFirstViewOfAllImagesAndThenTheSecond) {
  const TemporaryFolder folder;
  WriteFile(folder / "train-images-idx3-ubyte", Idx({5, 12, 12}, Noise(5 * 144)));
  WriteFile(folder / "train-labels-idx1-ubyte", Idx({5}, {0, 1, 2, 3, 4}));
  const Dataset data = *Dataset::ReadIdx(folder.path(), "train");
  const std::vector<uint32_t> images = {3, 1, 4};
  Variation variation{.augment = {.crop_padding = 3}, .seed = 7, .epoch = 2};
  Batch one, three;
  ASSERT_TRUE(data.Load(images, 0, 1, one, &variation).ok());
  variation.augment.views = 3;
  ASSERT_TRUE(data.Load(images, 0, 1, three, &variation).ok());
  EXPECT_EQ(three.labels, one.labels);
  EXPECT_EQ(three.size(), 3u);
  ASSERT_EQ(three.images.size(), 3 * one.images.size());
  EXPECT_EQ(BatchFloats(three.images.begin(), three.images.begin() + 3 * 144), one.images);
  // An image's views do not depend on what is beside it.
  Batch alone;
  ASSERT_TRUE(data.Load({1}, 0, 1, alone, &variation).ok());
  for (int64_t view = 0; view < 3; ++view) {
    const auto begin = three.images.begin() + (view * 3 + 1) * 144;
    EXPECT_EQ(std::vector<float>(begin, begin + 144),
              std::vector<float>(alone.images.begin() + view * 144, alone.images.begin() + (view + 1) * 144));
  }
}

// A range that was begun and given up goes on elsewhere, in batches of another size, with the same images to the bit.
TEST(Augment, BatchesFromTheMiddleOfAnEpochAreTheSame) {
  const TemporaryFolder folder;
  WriteImages(folder.path(), "train", 64, 12);
  const Dataset data = *Dataset::ReadIdx(folder.path(), "train");
  const Augment augment{.flip_horizontal = true, .crop_padding = 2, .crop_area_min = 0.5, .contrast = 0.2};
  const std::vector<uint32_t> order = EpochOrder(64, 3, 1);
  const auto images = [&](size_t from, uint32_t batch_size, uint32_t epoch) {
    Prefetcher prefetcher(data, {.mean = 0.3, .deviation = 0.4}, 2, augment, /*seed=*/3);
    prefetcher.Start({order.begin() + static_cast<int64_t>(from), order.end()}, batch_size, epoch);
    std::vector<float> values;
    for (;;) {
      auto batch = *prefetcher.Next(absl::Seconds(60));
      if (batch == nullptr) return values;
      values.insert(values.end(), batch->images.begin(), batch->images.end());
    }
  };
  const std::vector<float> whole = images(0, 16, 1), rest = images(40, 7, 1);
  EXPECT_EQ(rest, std::vector<float>(whole.begin() + 40 * 144, whole.end()));
  EXPECT_NE(images(0, 16, 2), whole);
}

// What each operation makes is compared with Pillow by vary_image_test.py.
TEST(RandAugment, SeveralOperationsAreDrawnForEachImage) {
  const Bytes image = Noise(kShape.values());
  std::set<Bytes> seen;
  for (uint32_t i = 0; i < 200; ++i) {
    const Augment augment{.rand_augment = 2, .rand_augment_magnitude = 15};
    seen.insert(Varied(image, augment, i));
    EXPECT_EQ(Varied(image, augment, i), Varied(image, augment, i));
  }
  EXPECT_GT(seen.size(), 100u);
}

TEST(RandAugment, StrengthsAreThoseOfTorchvision) {
  const ImageShape shape{.channels = 3, .height = 331, .width = 662};
  const auto at = [&](Operation operation, double magnitude) { return StrengthOf(operation, magnitude, shape); };
  EXPECT_DOUBLE_EQ(at(Operation::kShearX, 15), 0.15);
  EXPECT_DOUBLE_EQ(at(Operation::kTranslateX, 30), 300);
  EXPECT_DOUBLE_EQ(at(Operation::kTranslateY, 30), 150);
  EXPECT_DOUBLE_EQ(at(Operation::kRotate, 9), 9);
  EXPECT_DOUBLE_EQ(at(Operation::kColor, 10), 0.3);
  const int bits[] = {8, 8, 8, 8, 7, 7, 7, 7, 7, 7, 7, 7, 6, 6, 6, 6, 6, 6, 6, 5, 5, 5, 5, 5, 5, 5, 5, 4, 4, 4, 4};
  for (int i = 0; i <= 30; ++i) EXPECT_EQ(at(Operation::kPosterize, i), bits[i]) << i;
  EXPECT_DOUBLE_EQ(at(Operation::kSolarize, 0), 255);
  EXPECT_DOUBLE_EQ(at(Operation::kSolarize, 30), 0);
  EXPECT_EQ(at(Operation::kEqualize, 30), 0);
}

TEST(Augment, SomeImagesBecomeGreyAndSomeBlurred) {
  const Bytes image = Noise(kShape.values());
  int grey = 0, blurred = 0;
  for (uint32_t i = 0; i < 1000; ++i) {
    const Bytes one = Varied(image, {.grey = 0.2}, i);
    const size_t plane = one.size() / 3;
    const bool same = std::equal(one.begin(), one.begin() + plane, one.begin() + plane) &&
                      std::equal(one.begin(), one.begin() + plane, one.begin() + 2 * plane);
    EXPECT_TRUE(same || one == image);
    grey += same ? 1 : 0;
    blurred += Varied(image, {.blur = 0.3}, i) == image ? 0 : 1;
  }
  EXPECT_NEAR(grey, 200, 60);
  // One of less than a quarter of a pixel changes hardly anything.
  EXPECT_NEAR(blurred, 300 * 0.93, 70);
}

}  // namespace
}  // namespace slackline::images::augment_test
