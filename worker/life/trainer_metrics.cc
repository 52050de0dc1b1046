#include "worker/life/trainer_metrics.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "figure_options.pb.h"
#include "google/protobuf/descriptor.h"
#include "scheduler.pb.h"

namespace slackline::worker {
namespace {

const std::vector<double> kSeconds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60};

const wire::FigureSeries& OptionsOf(std::string_view figure) {
  const auto* const field = wire::WorkerProgress::descriptor()->FindFieldByName(std::string(figure));
  SLACKLINE_CHECK(field != nullptr);
  return field->options().GetExtension(wire::series);
}

// Returns the figure; null for no name.
const StepFigure* Find(std::string_view name) {
  if (name.empty()) return nullptr;
  const auto* const found = std::find_if(std::begin(kFigures), std::end(kFigures),
                                         [name](const StepFigure& figure) { return figure.name == name; });
  SLACKLINE_CHECK(found != std::end(kFigures));
  return found;
}

double NumberOf(const StepFigure* figure, const StepFacts& step) {
  if (figure == nullptr) return 0;
  return std::visit([](auto value) { return static_cast<double>(value); }, ValueOf(*figure, step));
}

}  // namespace

std::vector<TrainerMetrics::FigureSeries> TrainerMetrics::MakeSeries(slackline::Metrics& metrics) {
  std::vector<FigureSeries> all;
  for (const StepFigure& figure : kFigures) {
    const wire::FigureSeries& options = OptionsOf(figure.name);
    if (options.name().empty()) continue;
    FigureSeries& made = all.emplace_back(FigureSeries{.figure = &figure, .without = Find(options.without())});
    slackline::Metrics::Labels labels;
    if (options.has_outcome()) labels["outcome"] = options.outcome();
    switch (options.kind()) {
      case wire::FigureSeries::COUNTER:
        made.record = [&to = metrics.counter(options.name(), options.help(), labels)](double value) { to.Add(value); };
        break;
      case wire::FigureSeries::GAUGE:
        made.record = [&to = metrics.gauge(options.name(), options.help(), labels)](double value) { to.Set(value); };
        break;
      case wire::FigureSeries::HISTOGRAM:
        made.record = [&to = metrics.histogram(options.name(), options.help(), kSeconds, labels)](double value) {
          to.Observe(value);
        };
        break;
    }
  }
  return all;
}

TrainerMetrics::TrainerMetrics(slackline::Metrics& metrics)
    : metrics_(metrics),
      steps_(metrics.counter("slackline_worker_steps_total", "Steps finished")),
      figures_(MakeSeries(metrics)),
      evaluation_seconds_(
          metrics.histogram("slackline_worker_evaluation_seconds", "Evaluations on the test images", kSeconds)),
      loss_(metrics.gauge("slackline_worker_loss", "Mean loss of the last step")),
      skipped_(metrics.counter("slackline_worker_steps_skipped_total",
                               "Steps in fp16 that pushed nothing, since their gradient was not finite")),
      loss_scale_(metrics.gauge("slackline_worker_loss_scale_ratio",
                                "Factor of the loss in fp16 (worker.precision); 1 in other precisions")) {
  loss_scale_.Set(1);
}

void TrainerMetrics::Record(const StepFacts& step) {
  steps_.Add();
  for (const FigureSeries& one : figures_) {
    one.record(NumberOf(one.figure, step) - NumberOf(one.without, step));
  }
  loss_.Set(step.loss);
}

void TrainerMetrics::RecordEvaluation(const std::optional<double>& accuracy, absl::Duration took) {
  if (accuracy) {
    metrics_
        .gauge("slackline_worker_test_accuracy_ratio",
               "Accuracy of the last evaluation made here; absent until one is measured")
        .Set(*accuracy);
  }
  evaluation_seconds_.Observe(absl::ToDoubleSeconds(took));
}

}  // namespace slackline::worker
