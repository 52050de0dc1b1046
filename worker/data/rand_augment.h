// The operations of RandAugment (Cubuk et al. 2020): torchvision's 14, on its scale from 0 to 30, with the pixels that
// Pillow makes.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/prepared_index.h"

namespace slackline::worker {

enum class Operation {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
inline constexpr int kOperations = 14;

// It goes both ways, each every other time.
bool HasSign(Operation operation);

// What `magnitude`, 0 to 30, means: a slope, pixels, degrees, a factor's difference from 1, bits or a threshold; 0 for
// what has no strength. Pixels are a share of the width or height.
double StrengthOf(Operation operation, double magnitude, const ImageShape& shape);

// `image`: channels x height x width, changed in place; `scratch` is used. What comes in from outside is black, the
// nearest pixel is taken. Colours are those of images with three channels.
void Perform(Operation operation, double strength, const ImageShape& shape, std::vector<uint8_t>& image,
             std::vector<uint8_t>& scratch);

// ITU-R 601-2 as Pillow rounds it, of pixel `p`; of images without three channels the pixel itself.
uint8_t GreyOf(const std::vector<uint8_t>& image, const ImageShape& shape, size_t p);
// The same of floats, not rounded.
float GreyOf(const std::vector<float>& image, const ImageShape& shape, size_t p);

// A Gaussian of `deviation` pixels, cut off at three deviations; at the border the outermost pixels go on.
void Blur(double deviation, const ImageShape& shape, std::vector<uint8_t>& image);
void Blur(double deviation, const ImageShape& shape, std::vector<float>& image);

}  // namespace slackline::worker
