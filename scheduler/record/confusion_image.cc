#include "scheduler/record/confusion_image.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "common/base/check.h"

namespace slackline::scheduler {
namespace {

// Near this many pixels a side, whatever the number of classes; but no larger cells than that.
constexpr uint32_t kSide = 192, kCellMax = 24;
// Indices of colours: 0 to kDarkest by share, and one for labels without samples.
constexpr uint8_t kDarkest = 254, kNoSamples = 255;

// Returns the red, green and blue of each index: from white to dark blue, then light grey.
std::vector<uint8_t> Palette() {
  constexpr std::array<double, 3> kDark = {8, 48, 107};
  std::vector<uint8_t> colours;
  for (int i = 0; i <= kDarkest; ++i) {
    for (const double dark : kDark) {
      colours.push_back(static_cast<uint8_t>(std::lround(255 + (dark - 255) * i / kDarkest)));
    }
  }
  colours.insert(colours.end(), 3, uint8_t{0xE0});
  return colours;
}

// Returns the index of each cell, row after row.
std::string Shades(absl::Span<const uint64_t> counts, size_t classes) {
  std::string shades;
  for (size_t label = 0; label < classes; ++label) {
    double samples = 0;
    for (size_t i = 0; i < classes; ++i) samples += static_cast<double>(counts[label * classes + i]);
    for (size_t i = 0; i < classes; ++i) {
      const auto count = static_cast<double>(counts[label * classes + i]);
      shades.push_back(static_cast<char>(samples > 0 ? std::lround(kDarkest * count / samples) : kNoSamples));
    }
  }
  return shades;
}

}  // namespace

std::optional<PngImage> DrawConfusion(absl::Span<const uint64_t> counts) {
  const auto classes = static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(counts.size()))));
  if (classes == 0 || classes > kConfusionClassesMax || classes * classes != counts.size()) return std::nullopt;
  const size_t cell = std::min<size_t>(kCellMax, kSide / classes);
  const std::string shades = Shades(counts, classes);
  std::string pixels;
  for (size_t y = 0; y < classes * cell; ++y) {
    for (size_t x = 0; x < classes; ++x) pixels.append(cell, shades[y / cell * classes + x]);
  }
  const std::vector<uint8_t> palette = Palette();
  PngImage image;
  image.width = image.height = static_cast<uint32_t>(classes * cell);
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = image.width;
  png.height = image.height;
  png.format = PNG_FORMAT_RGB_COLORMAP;
  png.colormap_entries = static_cast<png_uint_32>(palette.size() / 3);
  image.bytes.resize(PNG_IMAGE_PNG_SIZE_MAX(png));
  png_alloc_size_t bytes = image.bytes.size();
  SLACKLINE_CHECK(png_image_write_to_memory(&png, image.bytes.data(), &bytes, /*convert_to_8_bit=*/0, pixels.data(),
                                            /*row_stride=*/0, palette.data()) != 0);
  image.bytes.resize(bytes);
  return image;
}

}  // namespace slackline::scheduler
