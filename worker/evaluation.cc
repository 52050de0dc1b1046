#include "worker/evaluation.h"

#include "common/check.h"

namespace slackline::worker {
namespace {

double Ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

}  // namespace

void ConfusionMatrix::Add(absl::Span<const int64_t> labels, absl::Span<const int64_t> predictions) {
  SLACKLINE_CHECK(labels.size() == predictions.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    SLACKLINE_CHECK(labels[i] >= 0 && labels[i] < classes_ && predictions[i] >= 0 && predictions[i] < classes_);
    ++counts_[static_cast<uint64_t>(labels[i]) * classes_ + static_cast<uint64_t>(predictions[i])];
  }
}

ConfusionMatrix::Tally ConfusionMatrix::TallyOf(uint32_t label) const {
  Tally tally;
  tally.correct = count(label, label);
  for (uint32_t other = 0; other < classes_; ++other) {
    tally.labelled += count(label, other);
    tally.predicted += count(other, label);
  }
  return tally;
}

Metrics ConfusionMatrix::ToMetrics() const {
  Metrics metrics;
  double occurring = 0;
  double correct = 0;
  double f1_by_samples = 0;
  for (uint32_t label = 0; label < classes_; ++label) {
    const Tally tally = TallyOf(label);
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
  metrics.accuracy = metrics.f1_micro = Ratio(correct, static_cast<double>(metrics.samples));
  metrics.f1_weighted = Ratio(f1_by_samples, static_cast<double>(metrics.samples));
  return metrics;
}

}  // namespace slackline::worker
