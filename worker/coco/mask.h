// Masks of COCO's annotations: polygons and runs, as pycocotools paints them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline::worker::coco {

// A picture of bytes, row after row.
struct Canvas {
  uint32_t height = 0;
  uint32_t width = 0;
  absl::Span<uint8_t> pixels;  // height x width
};

// A coordinate of a polygon in fifths of a pixel, rounded as pycocotools rounds it: of doubles, since many lie where
// floats would go the other way.
//   Requires: nearer to 0 than kCoordinateMax
int32_t FifthsOf(double coordinate);
inline constexpr double kCoordinateMax = 1e6;

// Sets the pixels inside a polygon, x and y in turns, in fifths of a pixel, to 1. What of it is outside of the canvas
// is cut off. Those that pycocotools sets (rleFrPoly): edges are followed in fifths, and columns filled between them.
//   Requires: at least one point
void PaintPolygon(absl::Span<const int32_t> polygon, const Canvas& canvas);

// Sets what runs say to 1: lengths of zeros and ones in turns, zeros first, down the columns. What is behind the last
// pixel does not count.
void PaintRuns(absl::Span<const uint32_t> runs, const Canvas& canvas);

// Runs as pycocotools writes them in JSON: in each character five bits of a number and one that says whether more of it
// follow; from the fourth number on it is the difference from the last but one.
//   kInvalidArgument  another character, cut short, a run below 0 or too long
absl::StatusOr<std::vector<uint32_t>> ParseRuns(absl::string_view text);

}  // namespace slackline::worker::coco
