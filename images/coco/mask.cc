#include "images/coco/mask.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace slackline::images::coco {
namespace {

// Parts of a pixel in which edges are followed.
constexpr double kPixelParts = 5;

struct FinePoint {
  int x = 0;
  int y = 0;
};

// Where the outline passes from one column to the next: places down the columns, at which inside and outside change.
class Outline {
 public:
  explicit Outline(const Canvas& canvas) : canvas_(canvas) {}

  // The next point, at most one away from the last one in x.
  void Add(FinePoint point) {
    if (begun_ && point.x != last_.x) Cross(point);
    last_ = point;
    begun_ = true;
  }

  std::vector<uint64_t> TakeSorted() {
    std::sort(places_.begin(), places_.end());
    return std::move(places_);
  }

 private:
  void Cross(FinePoint point) {
    const double x = ((point.x < last_.x ? point.x : point.x - 1) + 0.5) / kPixelParts - 0.5;
    if (std::floor(x) != x || x < 0 || x > static_cast<double>(canvas_.width) - 1) return;
    const double y = (std::min(point.y, last_.y) + 0.5) / kPixelParts - 0.5;
    const double row = std::ceil(std::clamp(y, 0.0, static_cast<double>(canvas_.height)));
    places_.push_back(static_cast<uint64_t>(x) * canvas_.height + static_cast<uint64_t>(row));
  }

  const Canvas& canvas_;
  FinePoint last_;
  bool begun_ = false;
  std::vector<uint64_t> places_;
};

// Both ends are among the points.
void FollowEdge(FinePoint from, FinePoint to, Outline& outline) {
  const int across = std::abs(to.x - from.x), down = std::abs(to.y - from.y);
  const bool flat = across >= down;
  // Rounding is the same whichever way an edge goes.
  const bool back = flat ? from.x > to.x : from.y > to.y;
  const FinePoint begin = back ? to : from, end = back ? from : to;
  const int steps = std::max(across, down);
  const double slope = steps == 0 ? 0 : static_cast<double>(flat ? end.y - begin.y : end.x - begin.x) / steps;
  for (int step = 0; step <= steps; ++step) {
    const int at = back ? steps - step : step;
    if (flat) {
      outline.Add({begin.x + at, static_cast<int>(begin.y + slope * at + 0.5)});
    } else {
      outline.Add({static_cast<int>(begin.x + slope * at + 0.5), begin.y + at});
    }
  }
}

// Pixels [begin, end) down the columns.
void PaintColumns(uint64_t begin, uint64_t end, const Canvas& canvas) {
  end = std::min(end, uint64_t{canvas.height} * canvas.width);
  if (begin >= end) return;
  uint64_t x = begin / canvas.height, y = begin % canvas.height;
  for (uint64_t at = begin; at < end; ++at) {
    canvas.pixels[y * canvas.width + x] = 1;
    if (++y < canvas.height) continue;
    y = 0;
    ++x;
  }
}

}  // namespace

int32_t FifthsOf(double coordinate) { return static_cast<int32_t>(kPixelParts * coordinate + 0.5); }

void PaintPolygon(absl::Span<const int32_t> polygon, const Canvas& canvas) {
  SLACKLINE_CHECK(polygon.size() >= 2 && canvas.pixels.size() == uint64_t{canvas.height} * canvas.width);
  const size_t points = polygon.size() / 2;
  const auto point = [&](size_t i) { return FinePoint{polygon[2 * (i % points)], polygon[2 * (i % points) + 1]}; };
  Outline outline(canvas);
  for (size_t i = 0; i < points; ++i) FollowEdge(point(i), point(i + 1), outline);
  const std::vector<uint64_t> places = outline.TakeSorted();
  for (size_t i = 0; i < places.size(); i += 2) {
    PaintColumns(places[i], i + 1 < places.size() ? places[i + 1] : std::numeric_limits<uint64_t>::max(), canvas);
  }
}

void PaintRuns(absl::Span<const uint32_t> runs, const Canvas& canvas) {
  SLACKLINE_CHECK(canvas.pixels.size() == uint64_t{canvas.height} * canvas.width);
  uint64_t at = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i % 2 == 1) PaintColumns(at, at + runs[i], canvas);
    at += runs[i];
  }
}

absl::StatusOr<std::vector<uint32_t>> ParseRuns(absl::string_view text) {
  constexpr int kBits = 5, kBitsMax = 40;
  std::vector<uint32_t> runs;
  for (size_t at = 0; at < text.size();) {
    int64_t value = 0;
    int bits = 0;
    bool more = true;
    while (more) {
      const int part = at < text.size() ? text[at] - '0' : -1;
      if (part < 0 || part > 63 || bits >= kBitsMax) {
        return absl::InvalidArgumentError(absl::StrCat("its runs are no text of pycocotools, at character ", at));
      }
      value |= int64_t{part & 31} << bits;
      bits += kBits;
      more = (part & 32) != 0;
      if (!more && (part & 16) != 0) value -= int64_t{1} << bits;
      ++at;
    }
    if (runs.size() > 2) value += runs[runs.size() - 2];
    if (value < 0 || value > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat("run ", runs.size(), " of it is ", value, " pixels long"));
    }
    runs.push_back(static_cast<uint32_t>(value));
  }
  return runs;
}

}  // namespace slackline::images::coco
