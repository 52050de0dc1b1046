// A confusion matrix as a picture, for TensorBoard.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"

namespace slackline::scheduler {

// Of more there is no picture.
inline constexpr uint32_t kConfusionClassesMax = 64;

struct PngImage {
  uint32_t width = 0;
  uint32_t height = 0;
  std::string bytes;
};

// `counts`: samples by label (row after row) and prediction. A cell is white where none of a label's samples are, dark
// blue where all of them are, and light grey where the label has none. Nothing where `counts` are of no square, or of
// too many classes.
std::optional<PngImage> DrawConfusion(absl::Span<const uint64_t> counts);

}  // namespace slackline::scheduler
