#include "images/augment/augment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "common/base/check.h"
#include "images/augment/rand_augment.h"

namespace slackline::images {
namespace {

// Where no part with the wanted sides was found after so many draws, the image stays whole, as torchvision has it.
constexpr int kCropAttempts = 10;
constexpr double kRatioMax = 4.0 / 3;
// Of a Gaussian, in pixels.
constexpr double kBlurMin = 0.1;
constexpr double kBlurMax = 2;

// In [0, 1).
double Uniform(SplitMix64& random) { return static_cast<double>(random.Next() >> 11) * 0x1p-53; }

double Between(SplitMix64& random, double low, double high) { return low + (high - low) * Uniform(random); }

// 1 +- `most`, in units of 1/256; 1 without drawing for nothing.
int32_t Factor(SplitMix64& random, double most) {
  if (most == 0) return 256;
  return static_cast<int32_t>(std::lround(256 * Between(random, 1 - most, 1 + most)));
}

// Weights of two pixels, and of two rows, in units of 1/256.
struct LinearWeights {
  int32_t across = 0;
  int32_t down = 0;
};

// What is computed with pixels: of integers it is rounded.
template <typename Pixel>
struct PixelMath;

template <>
struct PixelMath<uint8_t> {
  using Wide = int32_t;
  using Sum = int64_t;

  // `middle` + factor x (value - middle), within what pixels are.
  static uint8_t Away(int32_t value, int32_t middle, int32_t factor) {
    return static_cast<uint8_t>(std::clamp((256 * middle + factor * (value - middle) + 128) >> 8, 0, 255));
  }
  static int32_t Mean(int64_t sum, int64_t count) { return static_cast<int32_t>((sum + count / 2) / count); }
  // Between two pixels of the row above and two of that below.
  static uint8_t Between4(const uint8_t* above, const uint8_t* below, uint32_t first, uint32_t second,
                          const LinearWeights& weights) {
    const int32_t upper = above[first] * (256 - weights.across) + above[second] * weights.across;
    const int32_t lower = below[first] * (256 - weights.across) + below[second] * weights.across;
    return static_cast<uint8_t>((upper * (256 - weights.down) + lower * weights.down + 32768) >> 16);
  }
};

template <>
struct PixelMath<float> {
  using Wide = float;
  using Sum = double;

  static float Away(float value, float middle, int32_t factor) {
    return std::clamp(middle + static_cast<float>(factor) * 0x1p-8f * (value - middle), 0.0f, 1.0f);
  }
  static float Mean(double sum, int64_t count) { return static_cast<float>(sum / static_cast<double>(count)); }
  static float Between4(const float* above, const float* below, uint32_t first, uint32_t second,
                        const LinearWeights& weights) {
    const auto right = static_cast<float>(weights.across), down = static_cast<float>(weights.down);
    const float upper = above[first] * (256 - right) + above[second] * right;
    const float lower = below[first] * (256 - right) + below[second] * right;
    return (upper * (256 - down) + lower * down) * 0x1p-16f;
  }
};

struct CropPart {
  uint32_t left = 0;
  uint32_t top = 0;
  uint32_t width = 0;
  uint32_t height = 0;
};

CropPart DrawPart(SplitMix64& random, const ImageShape& shape, double area_min) {
  const double area = static_cast<double>(shape.height) * shape.width;
  for (int attempt = 0; attempt < kCropAttempts; ++attempt) {
    const double wanted = area * Between(random, area_min, 1);
    const double ratio = std::exp(Between(random, -std::log(kRatioMax), std::log(kRatioMax)));
    const auto width = static_cast<uint32_t>(std::lround(std::sqrt(wanted * ratio * shape.width / shape.height)));
    const auto height = static_cast<uint32_t>(std::lround(std::sqrt(wanted / ratio * shape.height / shape.width)));
    if (width < 1 || height < 1 || width > shape.width || height > shape.height) continue;
    const auto left = static_cast<uint32_t>(random.Below(shape.width - width + 1));
    const auto top = static_cast<uint32_t>(random.Below(shape.height - height + 1));
    return {.left = left, .top = top, .width = width, .height = height};
  }
  return {.left = 0, .top = 0, .width = shape.width, .height = shape.height};
}

// Between which two pixels each pixel of a side lies, and how near to the second, in units of 1/256.
struct LinearPlace {
  uint32_t first = 0;
  uint32_t second = 0;
  int32_t weight = 0;
};

std::vector<LinearPlace> Sampling(uint32_t begin, uint32_t from, uint32_t to) {
  std::vector<LinearPlace> places(to);
  for (uint32_t i = 0; i < to; ++i) {
    const double at = std::clamp((i + 0.5) * from / to - 0.5, 0.0, from - 1.0);
    const auto first = static_cast<uint32_t>(at);
    places[i] = {.first = begin + first,
                 .second = begin + std::min(first + 1, from - 1),
                 .weight = static_cast<int32_t>(std::lround((at - first) * 256))};
  }
  return places;
}

}  // namespace

SplitMix64 DrawsFor(const Variation& variation, uint32_t image) {
  // Each is mixed before the next is added, so that neighbours have nothing in common.
  return SplitMix64(SplitMix64(SplitMix64(SplitMix64(variation.seed).Next() + variation.epoch).Next() + image).Next());
}

template <typename Pixel>
const Pixel* BasicAugmenter<Pixel>::Apply(const Pixel* in, uint32_t image, uint32_t view) {
  const Augment& augment = variation_.augment;
  if (!augment.on()) return in;
  SplitMix64 random = DrawsFor(variation_, image);
  if (view > 0) random = SplitMix64(SplitMix64(random.Next() + view).Next());
  image_.assign(in, in + shape_.values());
  before_.resize(image_.size());
  if (augment.crop_area_min < 1) ResizedCrop(random);
  if (augment.crop_padding > 0 || augment.flip_horizontal || augment.flip_vertical) Move(random);
  if (augment.rand_augment > 0) RandAugment(random);
  if (augment.brightness > 0 || augment.contrast > 0 || augment.saturation > 0) Jitter(random);
  if (augment.grey > 0 || augment.blur > 0) Fade(random);
  return image_.data();
}

template <typename Pixel>
void BasicAugmenter<Pixel>::ResizedCrop(SplitMix64& random) {
  const CropPart part = DrawPart(random, shape_, variation_.augment.crop_area_min);
  const std::vector<LinearPlace> across = Sampling(part.left, part.width, shape_.width);
  const std::vector<LinearPlace> down = Sampling(part.top, part.height, shape_.height);
  std::swap(image_, before_);
  Pixel* out = image_.data();
  for (uint32_t c = 0; c < shape_.channels; ++c) {
    const Pixel* plane = before_.data() + size_t{c} * shape_.height * shape_.width;
    for (const LinearPlace& y : down) {
      const Pixel* above = plane + size_t{y.first} * shape_.width;
      const Pixel* below = plane + size_t{y.second} * shape_.width;
      for (const LinearPlace& x : across) {
        *out++ = PixelMath<Pixel>::Between4(above, below, x.first, x.second, {.across = x.weight, .down = y.weight});
      }
    }
  }
}

template <typename Pixel>
void BasicAugmenter<Pixel>::Move(SplitMix64& random) {
  const Augment& augment = variation_.augment;
  const auto padding = static_cast<int64_t>(augment.crop_padding);
  const int64_t right = padding > 0 ? static_cast<int64_t>(random.Below(2 * padding + 1)) - padding : 0;
  const int64_t down = padding > 0 ? static_cast<int64_t>(random.Below(2 * padding + 1)) - padding : 0;
  const bool mirrored = augment.flip_horizontal && random.Below(2) == 1;
  const bool upside_down = augment.flip_vertical && random.Below(2) == 1;
  std::swap(image_, before_);
  const int64_t width = shape_.width, height = shape_.height;
  // Columns [begin, end) of the result come from columns further left by `right`; the others are black.
  const int64_t begin = std::clamp<int64_t>(right, 0, width), end = std::clamp<int64_t>(width + right, 0, width);
  Pixel* out = image_.data();
  for (uint32_t c = 0; c < shape_.channels; ++c) {
    const Pixel* plane = before_.data() + c * height * width;
    for (int64_t y = 0; y < height; ++y, out += width) {
      const int64_t from = (upside_down ? height - 1 - y : y) - down;
      std::fill_n(out, width, Pixel{0});
      if (from < 0 || from >= height || begin >= end) continue;
      std::memcpy(out + begin, plane + from * width + begin - right, static_cast<size_t>(end - begin) * sizeof(Pixel));
      if (mirrored) std::reverse(out, out + width);
    }
  }
}

template <typename Pixel>
void BasicAugmenter<Pixel>::RandAugment(SplitMix64& random) {
  if constexpr (std::is_same_v<Pixel, uint8_t>) {
    for (uint32_t i = 0; i < variation_.augment.rand_augment; ++i) {
      const auto operation = static_cast<Operation>(random.Below(kOperations));
      const double strength = StrengthOf(operation, variation_.augment.rand_augment_magnitude, shape_);
      const bool back = HasSign(operation) && random.Below(2) == 1;
      Perform(operation, back ? -strength : strength, shape_, image_, before_);
    }
  } else {
    // CheckAugmentable() lets nobody come here.
    SLACKLINE_CHECK(variation_.augment.rand_augment == 0);
  }
}

template <typename Pixel>
void BasicAugmenter<Pixel>::Fade(SplitMix64& random) {
  const Augment& augment = variation_.augment;
  if (augment.grey > 0 && Uniform(random) < augment.grey && shape_.channels == 3) {
    const size_t plane = size_t{shape_.height} * shape_.width;
    for (size_t p = 0; p < plane; ++p) {
      const Pixel grey = GreyOf(image_, shape_, p);
      for (size_t c = 0; c < 3; ++c) image_[c * plane + p] = grey;
    }
  }
  if (augment.blur > 0 && Uniform(random) < augment.blur) Blur(Between(random, kBlurMin, kBlurMax), shape_, image_);
}

template <typename Pixel>
void BasicAugmenter<Pixel>::Jitter(SplitMix64& random) {
  using Math = PixelMath<Pixel>;
  const Augment& augment = variation_.augment;
  const size_t plane = size_t{shape_.height} * shape_.width;
  if (const int32_t factor = Factor(random, augment.brightness); factor != 256) {
    for (Pixel& value : image_) value = Math::Away(value, 0, factor);
  }
  const auto grey = [&](size_t p) { return typename Math::Wide{GreyOf(image_, shape_, p)}; };
  if (const int32_t factor = Factor(random, augment.contrast); factor != 256) {
    typename Math::Sum sum = 0;
    for (size_t p = 0; p < plane; ++p) sum += grey(p);
    const auto mean = Math::Mean(sum, static_cast<int64_t>(plane));
    for (Pixel& value : image_) value = Math::Away(value, mean, factor);
  }
  const int32_t factor = Factor(random, augment.saturation);
  if (factor == 256 || shape_.channels != 3) return;
  for (size_t p = 0; p < plane; ++p) {
    const auto middle = grey(p);
    for (size_t c = 0; c < 3; ++c) image_[c * plane + p] = Math::Away(image_[c * plane + p], middle, factor);
  }
}

template class BasicAugmenter<uint8_t>;
template class BasicAugmenter<float>;

}  // namespace slackline::images
