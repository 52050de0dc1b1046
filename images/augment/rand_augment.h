// Operations of RandAugment (Cubuk et al. 2020): torchvision's 14, on its scale from 0 to 30. They give the pixels that
// Pillow gives.
#pragma once

#include <cstdint>
#include <vector>

#include "images/prepared/prepared_index.h"

namespace slackline::images {

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

// Returns whether the strength may also be negative. Both signs are then equally likely.
bool HasSign(Operation operation);

// Returns the meaning of `magnitude`, 0 to 30: a slope, pixels, degrees, a factor's difference from 1, bits or a
// threshold; 0 for operations without strength. Pixels are a share of the width or height.
double StrengthOf(Operation operation, double magnitude, const ImageShape& shape);

// Changes `image`, channels x height x width, in place; `scratch` is overwritten. Pixels from outside the image are
// black. Geometric operations take the nearest pixel. kColor changes only images with three channels.
void Perform(Operation operation, double strength, const ImageShape& shape, std::vector<uint8_t>& image,
             std::vector<uint8_t>& scratch);

// Returns the grey of pixel `p`, by ITU-R 601-2 as Pillow rounds it; for images without three channels the pixel of the
// first channel.
uint8_t GreyOf(const std::vector<uint8_t>& image, const ImageShape& shape, size_t p);
// Returns the grey of a pixel of floats, not rounded.
float GreyOf(const std::vector<float>& image, const ImageShape& shape, size_t p);

// Blurs with a Gaussian of `deviation` pixels, cut off at three deviations. Beyond the border, the outermost pixels are
// repeated.
void Blur(double deviation, const ImageShape& shape, std::vector<uint8_t>& image);
void Blur(double deviation, const ImageShape& shape, std::vector<float>& image);

}  // namespace slackline::images
