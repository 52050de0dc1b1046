// Paints masks of COCO's annotations, polygons and runs, as pycocotools does.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace slackline::images::coco {

// A picture of bytes, row by row.
struct Canvas {
  uint32_t height = 0;
  uint32_t width = 0;
  absl::Span<uint8_t> pixels;  // height x width
};

// Returns a polygon's coordinate in fifths of a pixel, rounded as pycocotools rounds it. The argument is a double
// because many coordinates lie where a float would round the other way.
//   Requires: the absolute value is below kCoordinateMax
int32_t FifthsOf(double coordinate);
inline constexpr double kCoordinateMax = 1e6;

// Sets the pixels inside a polygon to 1. The polygon alternates x and y, in fifths of a pixel. Parts outside the canvas
// are cut off. The pixels are those that pycocotools sets (rleFrPoly): it follows edges in fifths, and fills columns
// between them.
//   Requires: at least one point
void PaintPolygon(absl::Span<const int32_t> polygon, const Canvas& canvas);

// Paints runs: alternating lengths of zeros and ones, zeros first, down the columns. Pixels of ones become 1. Runs
// beyond the last pixel are ignored.
void PaintRuns(absl::Span<const uint32_t> runs, const Canvas& canvas);

// Parses runs as pycocotools writes them in JSON. Each character holds five bits of a number, and one bit that says
// whether more characters of the number follow. From the fourth number on, the text holds the difference from the
// number two places before.
//   kInvalidArgument  an unknown character, a text that is cut short, a run that is negative or too long
absl::StatusOr<std::vector<uint32_t>> ParseRuns(absl::string_view text);

}  // namespace slackline::images::coco
