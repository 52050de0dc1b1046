#include "worker/evaluation/evaluation.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace slackline::worker {
namespace {

double Ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

ClassMetrics MetricsOf(const ClassPrecision& boxes) {
  const auto hits = static_cast<double>(boxes.hits), kept = static_cast<double>(boxes.kept),
             objects = static_cast<double>(boxes.objects);
  return {.samples = boxes.objects,
          .precision = Ratio(hits, kept),
          .recall = Ratio(hits, objects),
          .f1 = Ratio(2 * hits, kept + objects)};
}

}  // namespace

std::map<std::string, std::string> WeightsMetadata(const EvaluationResult& result) {
  std::map<std::string, std::string> metadata = {{"epoch", absl::StrCat(result.work.epoch)}};
  if (result.metrics.accuracy) metadata["test_accuracy"] = absl::StrCat(*result.metrics.accuracy);
  return metadata;
}

EvaluationMetrics MetricsOfObjects(uint64_t images, const AveragePrecision& boxes, const AveragePrecision* masks) {
  EvaluationMetrics metrics;
  const std::vector<ClassPrecision> all = boxes.Classes();
  const std::vector<ClassPrecision> all_masks = masks != nullptr ? masks->Classes() : std::vector<ClassPrecision>();
  ObjectMetrics& objects = metrics.objects.emplace();
  objects.boxes = MeanOf(all);
  if (masks != nullptr) objects.masks = MeanOf(all_masks);
  metrics.samples = images;
  metrics.accuracy = objects.boxes.map;
  double hits = 0, decided = 0, counted = 0;
  for (uint32_t label = 0; label < all.size(); ++label) {
    if (all[label].objects == 0 && all[label].kept == 0) continue;
    objects.labels.push_back(label);
    objects.class_boxes.push_back(all[label]);
    if (masks != nullptr) objects.class_masks.push_back(all_masks[label]);
    const ClassMetrics& one = metrics.classes.emplace_back(MetricsOf(all[label]));
    metrics.precision_macro += one.precision;
    metrics.recall_macro += one.recall;
    metrics.f1_macro += one.f1;
    metrics.f1_weighted += one.f1 * static_cast<double>(one.samples);
    counted += static_cast<double>(one.samples);
    hits += static_cast<double>(all[label].hits);
    decided += static_cast<double>(all[label].kept);
  }
  const auto occurring = static_cast<double>(metrics.classes.size());
  metrics.precision_macro = Ratio(metrics.precision_macro, occurring);
  metrics.recall_macro = Ratio(metrics.recall_macro, occurring);
  metrics.f1_macro = Ratio(metrics.f1_macro, occurring);
  metrics.f1_weighted = Ratio(metrics.f1_weighted, counted);
  metrics.f1_micro = Ratio(2 * hits, decided + counted);
  return metrics;
}

void ConfusionMatrix::Add(absl::Span<const int64_t> labels, absl::Span<const int64_t> predictions) {
  SLACKLINE_CHECK(labels.size() == predictions.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    SLACKLINE_CHECK(labels[i] >= 0 && labels[i] < classes_ && predictions[i] >= 0 && predictions[i] < classes_);
    const auto label = static_cast<size_t>(labels[i]), prediction = static_cast<size_t>(predictions[i]);
    ++tallies_[label].labelled;
    ++tallies_[prediction].predicted;
    tallies_[label].correct += label == prediction;
    if (!counts_.empty()) ++counts_[label * classes_ + prediction];
  }
}

EvaluationMetrics ConfusionMatrix::ToMetrics() const {
  EvaluationMetrics metrics;
  double occurring = 0;
  double correct = 0;
  double f1_by_samples = 0;
  for (const Tally& tally : tallies_) {
    const auto hits = static_cast<double>(tally.correct);
    const ClassMetrics one{.samples = tally.labelled,
                           .precision = Ratio(hits, static_cast<double>(tally.predicted)),
                           .recall = Ratio(hits, static_cast<double>(tally.labelled)),
                           .f1 = Ratio(2 * hits, static_cast<double>(tally.labelled + tally.predicted))};
    metrics.classes.push_back(one);
    metrics.samples += one.samples;
    metrics.precision_macro += one.precision;
    metrics.recall_macro += one.recall;
    metrics.f1_macro += one.f1;
    f1_by_samples += one.f1 * static_cast<double>(one.samples);
    correct += hits;
    if (tally.labelled + tally.predicted > 0) ++occurring;
  }
  metrics.precision_macro = Ratio(metrics.precision_macro, occurring);
  metrics.recall_macro = Ratio(metrics.recall_macro, occurring);
  metrics.f1_macro = Ratio(metrics.f1_macro, occurring);
  metrics.confusion = counts_;
  metrics.f1_micro = Ratio(correct, static_cast<double>(metrics.samples));
  metrics.accuracy = metrics.f1_micro;
  metrics.f1_weighted = Ratio(f1_by_samples, static_cast<double>(metrics.samples));
  return metrics;
}

}  // namespace slackline::worker
