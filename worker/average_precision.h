// How well objects are found: COCO's mean average precision, as pycocotools computes it for all sizes of objects.
//
// What is found of a class on an image is taken by its score, the best first, 100 at most, and each takes the object of
// the class that it overlaps most, of those that nobody has taken; at each of the overlaps 0.5, 0.55 ... 0.95 that is a
// hit. Over all images, precision is what it is at best with that recall or more, and its mean over the recalls 0, 0.01
// ... 1 is the class's average precision. What lies on a crowd counts as nothing.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"

namespace slackline::worker {

// Intersection over union of boxes (left, top, right, bottom); with a crowd, over what was found. 0 where nothing is.
//   Requires: four numbers each
double BoxOverlap(absl::Span<const float> found, absl::Span<const float> truth, bool crowd);
// The same of masks of one size.
double MaskOverlap(absl::Span<const uint8_t> found, absl::Span<const uint8_t> truth, bool crowd);

struct ClassPrecision {
  uint64_t objects = 0;  // crowds not counted
  uint64_t found = 0;
  double ap = 0;     // mean over the overlaps 0.5 to 0.95
  double ap_50 = 0;  // at 0.5
  // At an overlap of 0.5, of what was found with a score of at least 0.5.
  uint64_t kept = 0;
  uint64_t hits = 0;
};

// Thread-safety: none.
class AveragePrecision {
 public:
  static constexpr size_t kOverlaps = 10;
  static constexpr size_t kFoundMax = 100;  // of a class on an image
  static constexpr double kScoreMin = 0.5;  // for kept and hits

  explicit AveragePrecision(uint32_t classes) : classes_(classes) {}

  // What is on one image, and what was found there.
  struct Image {
    absl::Span<const int64_t> truth;  // labels
    absl::Span<const uint8_t> crowd;  // empty: none is
    absl::Span<const int64_t> found;  // labels
    absl::Span<const float> scores;   // finite
  };
  // By their places in the image's spans.
  struct Pair {
    size_t found = 0;
    size_t truth = 0;
  };
  // Asks `overlap` for pairs of one class only. Requires: labels below the number of classes.
  void Add(const Image& image, const std::function<double(const Pair&)>& overlap);

  // By label.
  std::vector<ClassPrecision> Classes() const;

 private:
  struct Hit {
    float score = 0;
    // By overlap: it has an object, or what it lies on does not count.
    std::bitset<kOverlaps> hit;
    std::bitset<kOverlaps> passed_over;
  };
  struct Tally {
    uint64_t objects = 0;
    std::vector<Hit> found;
  };

  static void Match(const std::vector<std::vector<double>>& overlaps, const std::vector<bool>& crowd, size_t level,
                    std::vector<Hit>& found);
  static double At(const std::vector<Hit>& found, uint64_t objects, size_t level);

  std::vector<Tally> classes_;
};

// Means over the classes that have objects; 0 where none has.
struct MeanPrecision {
  double map = 0;
  double map_50 = 0;
};
MeanPrecision MeanOf(const std::vector<ClassPrecision>& classes);

}  // namespace slackline::worker
