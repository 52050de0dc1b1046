// Figures on how well predictions match labels: a confusion matrix, and the figures computed from it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/metrics/measured.h"
#include "worker/evaluation/average_precision.h"

namespace slackline::worker {

// Figures of one class. A ratio whose divisor is 0 counts as 0.
struct ClassMetrics {
  uint64_t samples = 0;  // number of samples with this label
  double precision = 0;  // fraction of the samples predicted as this class that have its label
  double recall = 0;     // fraction of the samples with this label that are predicted as this class
  double f1 = 0;         // harmonic mean of precision and recall
};

// Figures of objects that were detected on images.
struct ObjectMetrics {
  MeanPrecision boxes;
  std::optional<MeanPrecision> masks = std::nullopt;
  // Label of each entry of EvaluationMetrics::classes, class_boxes and class_masks.
  std::vector<uint32_t> labels = {};
  std::vector<ClassPrecision> class_boxes = {};
  std::vector<ClassPrecision> class_masks = {};
};

struct EvaluationMetrics {
  uint64_t samples = 0;
  // Absent if the evaluation of a script measured none.
  std::optional<double> accuracy = std::nullopt;
  // Figures of a script under names of its own.
  NamedValues values = {};
  std::vector<ClassMetrics> classes = {};
  // Macro: the plain mean over the classes that occur, as label or as prediction.
  double precision_macro = 0;
  double recall_macro = 0;
  double f1_macro = 0;
  // Micro: over all decisions. With one label a sample it equals the accuracy.
  double f1_micro = 0;
  // Weighted: the mean by each class's number of samples.
  double f1_weighted = 0;
  // Fraction of samples whose label is among the five largest outputs; absent for fewer than 10 classes.
  std::optional<double> top5_accuracy = std::nullopt;
  // Number of samples for each label and prediction, row by row (a row is a label). Empty for more than
  // ConfusionMatrix::kClassesMax classes.
  std::vector<uint64_t> confusion = {};
  // Figures of images with objects. With them, `accuracy` is the mean average precision of the boxes, the samples of a
  // class are its objects, and the figures of a class come from ClassPrecision::hits. There is no confusion matrix.
  std::optional<ObjectMetrics> objects = std::nullopt;
};

// Returns the figures of the classes that occur. `masks`: null if no masks were measured.
EvaluationMetrics MetricsOfObjects(uint64_t images, const AveragePrecision& boxes, const AveragePrecision* masks);

// An evaluation that the scheduler asks for.
struct EvaluationWork {
  uint32_t epoch = 0;  // number of completed epochs
  bool final = false;
  std::string run_folder = {};
  uint64_t at_samples = 0;  // number from the scheduler, repeated in the report
};

// Result of an evaluation, with its task and the files that were written, relative to the run folder.
struct EvaluationResult {
  EvaluationWork work;
  // Mean over the samples; absent if the evaluation of a script measured none.
  std::optional<double> loss = 0;
  double seconds = 0;  // time that the evaluation took
  EvaluationMetrics metrics;
  std::vector<std::string> class_names;  // names in the order of labels
  std::vector<std::string> files;
};

// Returns the metadata of the file with the weights that were evaluated.
std::map<std::string, std::string> WeightsMetadata(const EvaluationResult& result);

// Counts (label, prediction) pairs. For more than kClassesMax classes it counts only what the figures of each class
// need: a matrix of a million classes would take 8 TB.
//
// Thread-safety: none.
class ConfusionMatrix {
 public:
  // Largest number of classes that have a matrix, which then takes 128 MiB.
  static constexpr uint32_t kClassesMax = 4096;

  explicit ConfusionMatrix(uint32_t classes)
      : classes_(classes), tallies_(classes), counts_(classes <= kClassesMax ? uint64_t{classes} * classes : 0) {}

  // Requires: equal lengths; every value in [0, classes).
  void Add(absl::Span<const int64_t> labels, absl::Span<const int64_t> predictions);

  // Requires: at most kClassesMax classes.
  uint64_t count(uint32_t label, uint32_t prediction) const { return counts_[uint64_t{label} * classes_ + prediction]; }
  EvaluationMetrics ToMetrics() const;

 private:
  struct Tally {
    uint64_t labelled = 0;
    uint64_t predicted = 0;
    uint64_t correct = 0;
  };

  const uint32_t classes_;
  std::vector<Tally> tallies_;    // entry for each class
  std::vector<uint64_t> counts_;  // labels x predictions, or empty
};

}  // namespace slackline::worker
