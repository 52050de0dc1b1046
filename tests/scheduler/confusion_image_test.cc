#include "scheduler/record/confusion_image.h"

#include <png.h>

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::scheduler::confusion_image_test {
namespace {

using ::testing::ElementsAre;

// Red, green and blue of the pixels of a picture.
struct Pixels {
  explicit Pixels(const PngImage& image) {
    png_image png{};
    png.version = PNG_IMAGE_VERSION;
    EXPECT_TRUE(png_image_begin_read_from_memory(&png, image.bytes.data(), image.bytes.size())) << png.message;
    EXPECT_EQ(png.width, image.width);
    EXPECT_EQ(png.height, image.height);
    png.format = PNG_FORMAT_RGB;
    width = png.width;
    bytes.resize(PNG_IMAGE_SIZE(png));
    EXPECT_TRUE(png_image_finish_read(&png, nullptr, bytes.data(), 0, nullptr)) << png.message;
  }
  std::vector<int> At(size_t x, size_t y) const {
    const auto pixel = bytes.begin() + static_cast<ptrdiff_t>(3 * (y * width + x));
    return {pixel, pixel + 3};
  }

  size_t width = 0;
  std::vector<uint8_t> bytes;
};

TEST(ConfusionImage, CellsAreShadedByTheirShareOfTheLabel) {
  // Three quarters of the first label are right. The second label has no samples.
  const std::optional<PngImage> image = DrawConfusion(std::vector<uint64_t>{3, 1, 0, 0});
  ASSERT_TRUE(image);
  EXPECT_EQ(image->width, 48);
  const Pixels pixels(*image);
  EXPECT_THAT(pixels.At(0, 0), ElementsAre(69, 99, 144));
  EXPECT_THAT(pixels.At(23, 23), ElementsAre(69, 99, 144));
  EXPECT_THAT(pixels.At(24, 0), ElementsAre(193, 203, 218));
  EXPECT_THAT(pixels.At(0, 24), ElementsAre(0xE0, 0xE0, 0xE0));
  EXPECT_THAT(pixels.At(47, 47), ElementsAre(0xE0, 0xE0, 0xE0));
}

TEST(ConfusionImage, WhatIsNoMatrixHasNone) {
  EXPECT_FALSE(DrawConfusion({}));
  EXPECT_FALSE(DrawConfusion(std::vector<uint64_t>{1, 2, 3}));
  EXPECT_TRUE(DrawConfusion(std::vector<uint64_t>(64 * 64, 1)));
  EXPECT_FALSE(DrawConfusion(std::vector<uint64_t>(65 * 65, 1)));
}

}  // namespace
}  // namespace slackline::scheduler::confusion_image_test
