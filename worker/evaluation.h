// How well predictions match labels: a confusion matrix, and the figures made from it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "worker/average_precision.h"

namespace slackline::worker {

// A ratio whose divisor is 0 counts as 0.
struct ClassMetrics {
  uint64_t samples = 0;  // with this label
  double precision = 0;  // of those predicted as this class, the fraction that are
  double recall = 0;     // of those that are, the fraction predicted
  double f1 = 0;         // harmonic mean of the two
};

// Of objects that were found on images.
struct ObjectMetrics {
  MeanPrecision boxes;
  std::optional<MeanPrecision> masks = std::nullopt;
  // Of Metrics::classes.
  std::vector<uint32_t> labels = {};
  std::vector<ClassPrecision> class_boxes = {};
  std::vector<ClassPrecision> class_masks = {};
};

struct Metrics {
  uint64_t samples = 0;
  double accuracy = 0;
  std::vector<ClassMetrics> classes;
  // Macro: the plain mean over the classes that occur, as label or as prediction.
  double precision_macro = 0;
  double recall_macro = 0;
  double f1_macro = 0;
  // Micro: over all decisions. With one label a sample it equals the accuracy.
  double f1_micro = 0;
  // Weighted: the mean by each class's number of samples.
  double f1_weighted = 0;
  // The share whose label is among the five largest outputs; absent for fewer than 10 classes.
  std::optional<double> top5_accuracy = std::nullopt;
  // Samples by label and prediction, row after row; empty for more than ConfusionMatrix::kClassesMax classes.
  std::vector<uint64_t> confusion = {};
  // Of images with objects: accuracy is the mean average precision of their boxes, samples of a class are objects, and
  // its figures are those of ClassPrecision::hits. There is no confusion.
  std::optional<ObjectMetrics> objects = std::nullopt;
};

// Of the classes that occur. `masks`: null where none were found.
Metrics MetricsOfObjects(uint64_t images, const AveragePrecision& boxes, const AveragePrecision* masks);

// Counts (label, prediction) pairs. For many classes it counts only what the figures of each class need: a matrix of a
// million classes would take 8 TB.
//
// Thread-safety: none.
class ConfusionMatrix {
 public:
  // The most classes that have a matrix, which then takes 128 MiB.
  static constexpr uint32_t kClassesMax = 4096;

  explicit ConfusionMatrix(uint32_t classes)
      : classes_(classes), tallies_(classes), counts_(classes <= kClassesMax ? uint64_t{classes} * classes : 0) {}

  // Requires: equal lengths; every value in [0, classes).
  void Add(absl::Span<const int64_t> labels, absl::Span<const int64_t> predictions);

  // Requires: at most kClassesMax classes.
  uint64_t count(uint32_t label, uint32_t prediction) const { return counts_[uint64_t{label} * classes_ + prediction]; }
  Metrics ToMetrics() const;

 private:
  struct Tally {
    uint64_t labelled = 0;
    uint64_t predicted = 0;
    uint64_t correct = 0;
  };

  const uint32_t classes_;
  std::vector<Tally> tallies_;    // by class
  std::vector<uint64_t> counts_;  // labels x predictions, or nothing
};

}  // namespace slackline::worker
