// Draws a confusion matrix as a picture, for TensorBoard.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"

namespace slackline::scheduler {

// Largest number of classes for which there is a picture.
inline constexpr uint32_t kConfusionClassesMax = 64;

struct PngImage {
  uint32_t width = 0;
  uint32_t height = 0;
  std::string bytes;
};

// Draws `counts`: samples by label (row after row) and prediction. A cell is white if it holds none of its label's
// samples, dark blue if it holds all of them, and light grey if the label has no samples. Returns nullopt if `counts`
// is empty, is not square, or has too many classes.
std::optional<PngImage> DrawConfusion(absl::Span<const uint64_t> counts);

}  // namespace slackline::scheduler
