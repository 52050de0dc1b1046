#include "worker/trainer_metrics.h"

namespace slackline::worker {
namespace {

const std::vector<double> kSeconds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60};
constexpr char kPushes[] = "slackline_worker_pushes_total";
constexpr char kPushesHelp[] = "Sub-pushes by what became of them";

}  // namespace

TrainerMetrics::TrainerMetrics(slackline::Metrics& metrics)
    : steps_(metrics.counter("slackline_worker_steps_total", "Steps finished")),
      samples_(metrics.counter("slackline_worker_samples_total", "Samples trained on")),
      compute_seconds_(
          metrics.histogram("slackline_worker_compute_seconds", "Loading, forward and backward of a step", kSeconds)),
      wait_seconds_(metrics.histogram("slackline_worker_wait_seconds", "Push, gate and pull of a step", kSeconds)),
      applied_(metrics.counter(kPushes, kPushesHelp, {{"outcome", "applied"}})),
      discarded_(metrics.counter(kPushes, kPushesHelp, {{"outcome", "discarded"}})),
      lost_(metrics.counter(kPushes, kPushesHelp, {{"outcome", "lost"}})),
      slack_(metrics.gauge("slackline_worker_slack_steps", "This worker's clock minus the slowest live worker's")),
      staleness_(metrics.gauge("slackline_worker_staleness_versions", "Largest staleness over shards, last step")),
      loss_(metrics.gauge("slackline_worker_loss", "Mean loss of the last step")),
      accuracy_(metrics.gauge("slackline_worker_test_accuracy", "Accuracy of the last evaluation made here")) {}

void TrainerMetrics::Record(const StepFacts& step) {
  steps_.Add();
  samples_.Add(static_cast<double>(step.samples));
  compute_seconds_.Observe(absl::ToDoubleSeconds(step.compute));
  wait_seconds_.Observe(absl::ToDoubleSeconds(step.wait));
  applied_.Add(static_cast<double>(step.applied));
  discarded_.Add(static_cast<double>(step.discarded));
  lost_.Add(static_cast<double>(step.lost));
  slack_.Set(static_cast<double>(step.slack));
  staleness_.Set(static_cast<double>(step.staleness_max));
  loss_.Set(step.loss);
}

void TrainerMetrics::RecordEvaluation(double accuracy) { accuracy_.Set(accuracy); }

}  // namespace slackline::worker
