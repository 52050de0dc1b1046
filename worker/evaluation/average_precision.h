// Mean average precision of object detection (COCO), computed as pycocotools does for objects of all sizes.
//
// Detections of a class on an image are matched with the objects there in the order of their scores, best first, 100 at
// most. A detection takes the object of its class that it overlaps most, among the objects that no other detection has
// taken. Matching is repeated for each of the overlaps 0.5, 0.55 ... 0.95: a detection is a hit if it takes an object
// with at least that overlap. A detection that lies on a crowd is neither a hit nor a miss.
//
// Precision at a recall is, over all images, the best precision at that recall or a higher one. The average precision
// of a class is the mean of these precisions over the recalls 0, 0.01 ... 1.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"

namespace slackline::worker {

// Returns the intersection over union of two boxes (left, top, right, bottom). For a crowd, divides by the area of
// `found` instead of the union. Returns 0 if that area is 0.
//   Requires: four numbers each
double BoxOverlap(absl::Span<const float> found, absl::Span<const float> truth, bool crowd);
// Returns the same measure for two masks. Requires: masks of one size.
double MaskOverlap(absl::Span<const uint8_t> found, absl::Span<const uint8_t> truth, bool crowd);

struct ClassPrecision {
  uint64_t objects = 0;  // number of objects, without crowds
  uint64_t found = 0;
  double ap = 0;     // average precision, mean over the overlaps 0.5 to 0.95
  double ap_50 = 0;  // average precision at an overlap of 0.5
  // Number of detections with a score of at least 0.5, without those on crowds; and number of hits among these
  // detections, at an overlap of 0.5.
  uint64_t kept = 0;
  uint64_t hits = 0;
};

// Collects the objects and detections of images, and computes the average precision of each class.
//
// Thread-safety: none.
class AveragePrecision {
 public:
  static constexpr size_t kOverlaps = 10;
  static constexpr size_t kFoundMax = 100;  // detections of one class on one image
  static constexpr double kScoreMin = 0.5;  // smallest score that ClassPrecision::kept and hits count

  explicit AveragePrecision(uint32_t classes) : classes_(classes) {}

  // Objects on one image, and detections on it.
  struct Image {
    absl::Span<const int64_t> truth;  // labels of the objects
    absl::Span<const uint8_t> crowd;  // 1 if the object is a crowd; empty: no object is
    absl::Span<const int64_t> found;  // labels of the detections
    absl::Span<const float> scores;   // finite
  };
  // A detection and an object, as indices into the spans of Image.
  struct Pair {
    size_t found = 0;
    size_t truth = 0;
  };
  // Adds an image. Calls `overlap` only for pairs of one class. Requires: labels below the number of classes.
  void Add(const Image& image, const std::function<double(const Pair&)>& overlap);

  // Returns the precision of each class, by label.
  std::vector<ClassPrecision> Classes() const;

 private:
  struct Hit {
    float score = 0;
    // Bit for each overlap: the detection has taken an object, or it lies on a crowd and does not count.
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

// Means over the classes that have objects; 0 if no class has any.
struct MeanPrecision {
  double map = 0;
  double map_50 = 0;
};
MeanPrecision MeanOf(const std::vector<ClassPrecision>& classes);

}  // namespace slackline::worker
