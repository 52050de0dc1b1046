#include "images/augment/rand_augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace slackline::images {
namespace {

constexpr double kMagnitudeMax = 30;
constexpr double kSlopeMax = 0.3;
constexpr double kDegreesMax = 30;
constexpr double kFactorMax = 0.9;
// torchvision: of images of 331 pixels, for which the operations were chosen.
constexpr double kMoveShareMax = 150.0 / 331;
constexpr double kPi = 3.14159265358979323846;

using Table = std::array<uint8_t, 256>;

// Where a pixel comes from: x' = x to_x[0] + y to_x[1] + to_x[2], and so on for y'.
struct Affine {
  double to_x[3] = {1, 0, 0};
  double to_y[3] = {0, 1, 0};
};

// In units of 1/65536.
int64_t Fixed(double value) { return static_cast<int64_t>(std::floor(value * 65536 + 0.5)); }

// Of a row or a column of the matrix: the step across, the step down, and where the middle of the first pixel goes.
struct FixedRow {
  int64_t across = 0;
  int64_t down = 0;
  int64_t begin = 0;

  explicit FixedRow(const double (&row)[3])
      : across(Fixed(row[0])), down(Fixed(row[1])), begin(Fixed(row[2] + row[0] * 0.5 + row[1] * 0.5)) {}
};

void Transform(const Affine& affine, const ImageShape& shape, std::vector<uint8_t>& image,
               std::vector<uint8_t>& scratch) {
  std::swap(image, scratch);
  image.assign(scratch.size(), 0);
  const FixedRow to_x(affine.to_x), to_y(affine.to_y);
  const int64_t width = shape.width, height = shape.height;
  const size_t plane = size_t{shape.width} * shape.height;
  for (int64_t y = 0; y < height; ++y) {
    int64_t from_x = to_x.begin + y * to_x.down, from_y = to_y.begin + y * to_y.down;
    for (int64_t x = 0; x < width; ++x, from_x += to_x.across, from_y += to_y.across) {
      const int64_t in_x = from_x >> 16, in_y = from_y >> 16;
      if (in_x < 0 || in_x >= width || in_y < 0 || in_y >= height) continue;
      const size_t from = static_cast<size_t>(in_y * width + in_x), to = static_cast<size_t>(y * width + x);
      for (size_t c = 0; c < shape.channels; ++c) image[c * plane + to] = scratch[c * plane + from];
    }
  }
}

// As Pillow's rotate() has it: about the middle, counterclockwise.
Affine Rotation(double degrees, const ImageShape& shape) {
  const double angle = -degrees * kPi / 180, cosine = std::cos(angle), sine = std::sin(angle);
  const double x = shape.width / 2.0, y = shape.height / 2.0;
  return {.to_x = {cosine, sine, cosine * -x + sine * -y + x}, .to_y = {-sine, cosine, -sine * -x + cosine * -y + y}};
}

// From `plain` by `factor` towards `value`, and beyond; cut off, as Pillow's blend() does.
uint8_t Blend(uint8_t plain, uint8_t value, float factor) {
  const float mixed =
      static_cast<float>(plain) + factor * static_cast<float>(static_cast<int>(value) - static_cast<int>(plain));
  return static_cast<uint8_t>(std::clamp(mixed, 0.0f, 255.0f));
}

void BlendWithGrey(float factor, const ImageShape& shape, std::vector<uint8_t>& image) {
  if (shape.channels != 3) return;
  const size_t plane = size_t{shape.width} * shape.height;
  for (size_t p = 0; p < plane; ++p) {
    const uint8_t grey = GreyOf(image, shape, p);
    for (size_t c = 0; c < 3; ++c) image[c * plane + p] = Blend(grey, image[c * plane + p], factor);
  }
}

void BlendWithMean(float factor, const ImageShape& shape, std::vector<uint8_t>& image) {
  const size_t plane = size_t{shape.width} * shape.height;
  uint64_t sum = 0;
  for (size_t p = 0; p < plane; ++p) sum += GreyOf(image, shape, p);
  const auto mean = static_cast<uint8_t>((2 * sum + plane) / (2 * plane));
  for (uint8_t& value : image) value = Blend(mean, value, factor);
}

// Against the image smoothed by [1 1 1; 1 5 1; 1 1 1] / 13; its border stays.
void BlendWithSmooth(float factor, const ImageShape& shape, std::vector<uint8_t>& image,
                     std::vector<uint8_t>& scratch) {
  if (shape.width < 3 || shape.height < 3) return;
  scratch = image;
  const size_t width = shape.width, plane = width * shape.height;
  for (size_t c = 0; c < shape.channels; ++c) {
    for (size_t y = 1; y + 1 < shape.height; ++y) {
      for (size_t x = 1; x + 1 < width; ++x) {
        const uint8_t* at = scratch.data() + c * plane + y * width + x;
        const uint8_t *above = at - width, *below = at + width;
        const uint32_t sum =
            above[-1] + above[0] + above[1] + at[-1] + 5u * at[0] + at[1] + below[-1] + below[0] + below[1];
        image[c * plane + y * width + x] = Blend(static_cast<uint8_t>((2 * sum + 13) / 26), at[0], factor);
      }
    }
  }
}

template <typename MakeTable>
void Replace(const ImageShape& shape, std::vector<uint8_t>& image, const MakeTable& make) {
  const size_t plane = size_t{shape.width} * shape.height;
  for (size_t c = 0; c < shape.channels; ++c) {
    uint8_t* values = image.data() + c * plane;
    std::array<uint64_t, 256> counts{};
    for (size_t p = 0; p < plane; ++p) ++counts[values[p]];
    const Table table = make(counts);
    for (size_t p = 0; p < plane; ++p) values[p] = table[values[p]];
  }
}

template <typename Value>
Table TableOf(const Value& value) {
  Table table;
  for (int i = 0; i < 256; ++i) table[i] = static_cast<uint8_t>(std::clamp<int64_t>(value(i), 0, 255));
  return table;
}

Table Same() {
  return TableOf([](int i) { return int64_t{i}; });
}

// The darkest value becomes 0, the brightest 255.
Table AutoContrast(const std::array<uint64_t, 256>& counts) {
  int low = 0, high = 255;
  while (low < 255 && counts[low] == 0) ++low;
  while (high > 0 && counts[high] == 0) --high;
  if (high <= low) return Same();
  const double scale = 255.0 / (high - low), offset = -low * scale;
  return TableOf([&](int i) { return static_cast<int64_t>(i * scale + offset); });
}

Table Equalize(const std::array<uint64_t, 256>& counts) {
  uint64_t sum = 0, last = 0;
  for (const uint64_t count : counts) {
    sum += count;
    if (count > 0) last = count;
  }
  const uint64_t step = (sum - last) / 255;
  if (step == 0) return Same();
  uint64_t before = step / 2;
  return TableOf([&](int i) {
    const uint64_t value = before / step;
    before += counts[i];
    return static_cast<int64_t>(value);
  });
}

}  // namespace

bool HasSign(Operation operation) {
  switch (operation) {
    case Operation::kIdentity:
    case Operation::kPosterize:
    case Operation::kSolarize:
    case Operation::kAutoContrast:
    case Operation::kEqualize:
      return false;
    default:
      return true;
  }
}

double StrengthOf(Operation operation, double magnitude, const ImageShape& shape) {
  const double share = magnitude / kMagnitudeMax;
  switch (operation) {
    case Operation::kShearX:
    case Operation::kShearY:
      return kSlopeMax * share;
    case Operation::kTranslateX:
      return kMoveShareMax * shape.width * share;
    case Operation::kTranslateY:
      return kMoveShareMax * shape.height * share;
    case Operation::kRotate:
      return kDegreesMax * share;
    case Operation::kBrightness:
    case Operation::kColor:
    case Operation::kContrast:
    case Operation::kSharpness:
      return kFactorMax * share;
    case Operation::kPosterize:
      return 8 - std::nearbyint(4 * share);
    case Operation::kSolarize:
      return 255 * (1 - share);
    default:
      return 0;
  }
}

uint8_t GreyOf(const std::vector<uint8_t>& image, const ImageShape& shape, size_t p) {
  if (shape.channels != 3) return image[p];
  const size_t plane = size_t{shape.width} * shape.height;
  return static_cast<uint8_t>(
      (image[p] * 19595u + image[plane + p] * 38470u + image[2 * plane + p] * 7471u + 0x8000u) >> 16);
}

float GreyOf(const std::vector<float>& image, const ImageShape& shape, size_t p) {
  if (shape.channels != 3) return image[p];
  const size_t plane = size_t{shape.width} * shape.height;
  return (image[p] * 19595 + image[plane + p] * 38470 + image[2 * plane + p] * 7471) * 0x1p-16f;
}

void Perform(Operation operation, double strength, const ImageShape& shape, std::vector<uint8_t>& image,
             std::vector<uint8_t>& scratch) {
  const auto factor = static_cast<float>(1 + strength);
  switch (operation) {
    case Operation::kIdentity:
      return;
    case Operation::kShearX:
      return Transform({.to_x = {1, strength, 0}}, shape, image, scratch);
    case Operation::kShearY:
      return Transform({.to_y = {strength, 1, 0}}, shape, image, scratch);
    case Operation::kTranslateX:
      return Transform({.to_x = {1, 0, -std::trunc(strength)}}, shape, image, scratch);
    case Operation::kTranslateY:
      return Transform({.to_y = {0, 1, -std::trunc(strength)}}, shape, image, scratch);
    case Operation::kRotate:
      return Transform(Rotation(strength, shape), shape, image, scratch);
    case Operation::kBrightness:
      for (uint8_t& value : image) value = Blend(0, value, factor);
      return;
    case Operation::kColor:
      return BlendWithGrey(factor, shape, image);
    case Operation::kContrast:
      return BlendWithMean(factor, shape, image);
    case Operation::kSharpness:
      return BlendWithSmooth(factor, shape, image, scratch);
    case Operation::kPosterize: {
      const auto dropped = 8 - static_cast<int>(strength);
      return Replace(shape, image,
                     [&](const auto&) { return TableOf([&](int i) { return int64_t{(i >> dropped) << dropped}; }); });
    }
    case Operation::kSolarize:
      return Replace(shape, image,
                     [&](const auto&) { return TableOf([&](int i) { return int64_t{i < strength ? i : 255 - i}; }); });
    case Operation::kAutoContrast:
      return Replace(shape, image, AutoContrast);
    case Operation::kEqualize:
      return Replace(shape, image, Equalize);
  }
}

namespace {

void Keep(float sum, uint8_t& pixel) { pixel = static_cast<uint8_t>(std::clamp(std::lround(sum), 0L, 255L)); }
void Keep(float sum, float& pixel) { pixel = std::clamp(sum, 0.0f, 1.0f); }

template <typename Pixel>
void BlurPixels(double deviation, const ImageShape& shape, std::vector<Pixel>& image) {
  const auto radius = static_cast<int64_t>(std::ceil(3 * deviation));
  std::vector<float> weights;
  float total = 0;
  for (int64_t at = -radius; at <= radius; ++at) {
    weights.push_back(static_cast<float>(std::exp(-static_cast<double>(at * at) / (2 * deviation * deviation))));
    total += weights.back();
  }
  for (float& weight : weights) weight /= total;
  const int64_t width = shape.width, height = shape.height;
  std::vector<float> rows(static_cast<size_t>(width * height));
  for (size_t c = 0; c < shape.channels; ++c) {
    Pixel* plane = image.data() + c * rows.size();
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        float sum = 0;
        for (int64_t k = -radius; k <= radius; ++k) {
          sum += weights[k + radius] * plane[y * width + std::clamp<int64_t>(x + k, 0, width - 1)];
        }
        rows[y * width + x] = sum;
      }
    }
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        float sum = 0;
        for (int64_t k = -radius; k <= radius; ++k) {
          sum += weights[k + radius] * rows[std::clamp<int64_t>(y + k, 0, height - 1) * width + x];
        }
        Keep(sum, plane[y * width + x]);
      }
    }
  }
}

}  // namespace

void Blur(double deviation, const ImageShape& shape, std::vector<uint8_t>& image) {
  BlurPixels(deviation, shape, image);
}

void Blur(double deviation, const ImageShape& shape, std::vector<float>& image) { BlurPixels(deviation, shape, image); }

}  // namespace slackline::images
