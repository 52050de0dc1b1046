#include "images/augment/mix_batch.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace slackline::images {
namespace {

// In (0, 1): its logarithm is finite.
double Open(SplitMix64& random) { return (static_cast<double>(random.Next() >> 11) + 0.5) * 0x1p-53; }

double DrawNormal(SplitMix64& random) {
  const double radius = std::sqrt(-2 * std::log(Open(random)));
  return radius * std::cos(6.283185307179586 * Open(random));
}

// The logarithm of what is drawn from Gamma(alpha, 1), which for small alpha itself would be 0 (Marsaglia and Tsang
// 2000).
double LogGamma(SplitMix64& random, double alpha) {
  const double shift = alpha < 1 ? std::log(Open(random)) / alpha : 0;
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = DrawNormal(random), v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(Open(random)) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v) + shift;
  }
}

struct MixBox {
  size_t left = 0;
  size_t right = 0;
  size_t top = 0;
  size_t bottom = 0;
};

// Its middle may be anywhere; what is beyond the border is cut off.
MixBox DrawBox(SplitMix64& random, const ImageShape& shape, double share) {
  const double half = 0.5 * std::sqrt(1 - share);
  const auto side = [&](uint32_t length, size_t& begin, size_t& end) {
    const auto middle = static_cast<int64_t>(random.Below(length));
    const auto reach = static_cast<int64_t>(half * length);
    begin = static_cast<size_t>(std::max<int64_t>(middle - reach, 0));
    end = static_cast<size_t>(std::min<int64_t>(middle + reach, length));
  };
  MixBox box;
  side(shape.width, box.left, box.right);
  side(shape.height, box.top, box.bottom);
  return box;
}

void MixUp(const float* other, float share, absl::Span<float> image) {
  for (size_t p = 0; p < image.size(); ++p) image[p] = share * image[p] + (1 - share) * other[p];
}

void Cut(const float* other, const MixBox& box, const ImageShape& shape, absl::Span<float> image) {
  for (size_t c = 0; c < shape.channels; ++c) {
    for (size_t y = box.top; y < box.bottom; ++y) {
      const size_t row = (c * shape.height + y) * shape.width;
      std::copy(other + row + box.left, other + row + box.right, image.data() + row + box.left);
    }
  }
}

}  // namespace

double DrawBeta(SplitMix64& random, double alpha) {
  const double one = LogGamma(random, alpha), other = LogGamma(random, alpha);
  return 1 / (1 + std::exp(other - one));
}

void MixBatch(const Variation& variation, const ImageShape& shape, Batch& batch) {
  const Augment& augment = variation.augment;
  SLACKLINE_CHECK(augment.mixes() && !batch.labels.empty());
  SplitMix64 random(
      SplitMix64(SplitMix64(SplitMix64(variation.seed).Next() + variation.epoch).Next() + batch.noise).Next());
  const bool both = augment.mixup_alpha > 0 && augment.cutmix_alpha > 0;
  const bool cut = both ? random.Below(2) == 1 : augment.cutmix_alpha > 0;
  double share = DrawBeta(random, cut ? augment.cutmix_alpha : augment.mixup_alpha);
  MixBox box;
  if (cut) {
    box = DrawBox(random, shape, share);
    share = 1 - static_cast<double>((box.right - box.left) * (box.bottom - box.top)) /
                    (static_cast<double>(shape.width) * shape.height);
  }
  batch.share = static_cast<float>(share);
  const size_t bytes = shape.values(), count = batch.labels.size();
  const absl::Span<float> images = absl::MakeSpan(batch.images);
  // From the back, so that what comes before an image is still what it was.
  const std::vector<float> last(images.end() - static_cast<ptrdiff_t>(bytes), images.end());
  for (size_t i = count; i-- > 0;) {
    const float* other = i == 0 ? last.data() : images.data() + (i - 1) * bytes;
    const absl::Span<float> image = images.subspan(i * bytes, bytes);
    if (cut) {
      Cut(other, box, shape, image);
    } else {
      MixUp(other, batch.share, image);
    }
  }
  batch.other_labels.resize(count);
  for (size_t i = 0; i < count; ++i) batch.other_labels[i] = batch.labels[(i + count - 1) % count];
}

}  // namespace slackline::images
