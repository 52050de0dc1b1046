// Training images that vary from epoch to epoch.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/prepared_index.h"
#include "worker/data/random_order.h"

namespace slackline::worker {

// As the job file's data.augment has them.
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
  // Of batches; 0: not.
  double mixup_alpha = 0;
  double cutmix_alpha = 0;
  // Of each image, each varied otherwise: training.self_supervised.views.
  uint32_t views = 1;

  // Images vary.
  bool on() const {
    return flip_horizontal || flip_vertical || crop_padding > 0 || crop_area_min < 1 || brightness > 0 ||
           contrast > 0 || saturation > 0 || rand_augment > 0 || grey > 0 || blur > 0;
  }
  // Batches do.
  bool mixes() const { return mixup_alpha > 0 || cutmix_alpha > 0; }
};

// What is drawn for an image follows from these, from its number and that of the view, and from nothing else.
struct Variation {
  Augment augment = {};
  uint64_t seed = 0;
  uint32_t epoch = 0;
};

// The draws for an image.
SplitMix64 DrawsFor(const Variation& variation, uint32_t image);

// Of pixels from 0 to 255, or of floats from 0 to 1, for which the same is drawn and nothing is rounded.
// Requires: no RandAugment of floats.
//
// Thread-safety: none.
template <typename Pixel>
class BasicAugmenter {
 public:
  BasicAugmenter(const Variation& variation, const ImageShape& shape) : variation_(variation), shape_(shape) {}

  // `in`: channels x height x width. Returns as much: `in` itself where nothing is to be done, else memory that the
  // next call writes again. `view`: from 0, which is what there is without views.
  const Pixel* Apply(const Pixel* in, uint32_t image, uint32_t view = 0);

 private:
  // A part of the image is scaled to the whole.
  void ResizedCrop(SplitMix64& random);
  // Moves and flips.
  void Move(SplitMix64& random);
  void RandAugment(SplitMix64& random);
  void Jitter(SplitMix64& random);
  // Grey, and blurred.
  void Fade(SplitMix64& random);

  const Variation variation_;
  const ImageShape shape_;
  std::vector<Pixel> image_;
  std::vector<Pixel> before_;
};

extern template class BasicAugmenter<uint8_t>;
extern template class BasicAugmenter<float>;
using Augmenter = BasicAugmenter<uint8_t>;

}  // namespace slackline::worker
