// Varies training images from epoch to epoch.
#pragma once

#include <cstdint>
#include <vector>

#include "images/base/random_order.h"
#include "images/prepared/prepared_index.h"

namespace slackline::images {

// Settings of data.augment in the job file.
struct Augment {
  bool flip_horizontal = false;
  bool flip_vertical = false;
  uint32_t crop_padding = 0;  // pixels
  double crop_area_min = 1;   // share of the image
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  uint32_t rand_augment = 0;  // operations
  double rand_augment_magnitude = 9;
  double grey = 0;  // probability
  double blur = 0;  // probability
  // Parameters of mixup and CutMix, which mix the images of a batch; 0: off.
  double mixup_alpha = 0;
  double cutmix_alpha = 0;
  // Number of views of each image, each varied differently: training.self_supervised.views.
  uint32_t views = 1;

  // True if images vary.
  bool on() const {
    return flip_horizontal || flip_vertical || crop_padding > 0 || crop_area_min < 1 || brightness > 0 ||
           contrast > 0 || saturation > 0 || rand_augment > 0 || grey > 0 || blur > 0;
  }
  // True if the images of a batch are mixed.
  bool mixes() const { return mixup_alpha > 0 || cutmix_alpha > 0; }
};

// Input of the random draws for an image. The draws depend only on these values, the image's number and the view's
// number.
struct Variation {
  Augment augment = {};
  uint64_t seed = 0;
  uint32_t epoch = 0;
};

// Returns the random draws for an image.
SplitMix64 DrawsFor(const Variation& variation, uint32_t image);

// BasicAugmenter varies images whose pixels are integers from 0 to 255 or floats from 0 to 1. Both use the same draws;
// floats are not rounded.
// Requires: no RandAugment of floats.
//
// Thread-safety: none.
template <typename Pixel>
class BasicAugmenter {
 public:
  BasicAugmenter(const Variation& variation, const ImageShape& shape) : variation_(variation), shape_(shape) {}

  // Varies an image. `in`: channels x height x width. Returns the same number of pixels: `in` itself if nothing is to
  // be done, else memory that the next call overwrites. `view`: counted from 0; images without views use view 0.
  const Pixel* Apply(const Pixel* in, uint32_t image, uint32_t view = 0);

 private:
  // Scales a part of the image to the size of the whole.
  void ResizedCrop(SplitMix64& random);
  // Shifts and flips the image.
  void Move(SplitMix64& random);
  void RandAugment(SplitMix64& random);
  void Jitter(SplitMix64& random);
  // Turns the image grey and blurs it, each if drawn.
  void Fade(SplitMix64& random);

  const Variation variation_;
  const ImageShape shape_;
  std::vector<Pixel> image_;
  std::vector<Pixel> before_;
};

extern template class BasicAugmenter<uint8_t>;
extern template class BasicAugmenter<float>;
using Augmenter = BasicAugmenter<uint8_t>;

}  // namespace slackline::images
