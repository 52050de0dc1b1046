#include "worker/life/trainer_metrics.h"

namespace slackline::worker {
namespace {

const std::vector<double> kSeconds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60};
constexpr char kPushes[] = "slackline_worker_pushes_total";
constexpr char kPushesHelp[] =
    "Sub-pushes by what became of them: applied, discarded, quarantined (discarded as an outlier), or lost by a "
    "restore "
    "after they were answered";

}  // namespace

TrainerMetrics::TrainerMetrics(slackline::Metrics& metrics)
    : steps_(metrics.counter("slackline_worker_steps_total", "Steps finished")),
      samples_(metrics.counter("slackline_worker_samples_total", "Samples trained on")),
      pushed_bytes_(
          metrics.counter("slackline_worker_pushed_bytes_total",
                          "Values of gradients pushed, as they were encoded, without headers and repetitions")),
      pulled_bytes_(metrics.counter("slackline_worker_pulled_bytes_total", "Values of weights received, likewise")),
      compute_seconds_(
          metrics.histogram("slackline_worker_compute_seconds", "Loading, forward and backward of a step", kSeconds)),
      data_wait_seconds_(metrics.histogram("slackline_worker_data_wait_seconds",
                                           "Part of a step in which the next batch was not ready yet", kSeconds)),
      wait_seconds_(metrics.histogram("slackline_worker_wait_seconds",
                                      "Part of a step in which the trainer waited for servers", kSeconds)),
      push_seconds_(metrics.histogram("slackline_worker_push_seconds",
                                      "From a step's commit until all shards had answered its push", kSeconds)),
      pull_seconds_(metrics.histogram("slackline_worker_pull_seconds",
                                      "From a step's commit until the weights after it were there", kSeconds)),
      evaluation_seconds_(
          metrics.histogram("slackline_worker_evaluation_seconds", "Evaluations on the test images", kSeconds)),
      applied_(metrics.counter(kPushes, kPushesHelp, {{"outcome", "applied"}})),
      discarded_(metrics.counter(kPushes, kPushesHelp, {{"outcome", "discarded"}})),
      quarantined_(metrics.counter(kPushes, kPushesHelp, {{"outcome", "quarantined"}})),
      lost_(metrics.counter(kPushes, kPushesHelp, {{"outcome", "lost"}})),
      slack_(metrics.gauge("slackline_worker_slack_steps", "This worker's clock minus the slowest live worker's")),
      staleness_(metrics.gauge("slackline_worker_staleness_versions", "Largest staleness over shards, last step")),
      clock_(
          metrics.gauge("slackline_worker_clock_steps", "This worker's clock: pushes that every shard has answered")),
      gradient_norm_(metrics.gauge("slackline_worker_gradient_norm", "Norm of the last gradient pushed")),
      loss_(metrics.gauge("slackline_worker_loss", "Mean loss of the last step")),
      accuracy_(metrics.gauge("slackline_worker_test_accuracy_ratio", "Accuracy of the last evaluation made here")),
      skipped_(metrics.counter("slackline_worker_steps_skipped_total",
                               "Steps in fp16 that pushed nothing, since their gradient was not finite")),
      loss_scale_(metrics.gauge("slackline_worker_loss_scale_ratio",
                                "Factor of the loss in fp16 (worker.precision); 1 in other precisions")) {
  loss_scale_.Set(1);
}

void TrainerMetrics::Record(const StepFacts& step) {
  steps_.Add();
  samples_.Add(static_cast<double>(step.samples));
  pushed_bytes_.Add(static_cast<double>(step.pushed_bytes));
  pulled_bytes_.Add(static_cast<double>(step.pulled_bytes));
  compute_seconds_.Observe(absl::ToDoubleSeconds(step.compute));
  data_wait_seconds_.Observe(absl::ToDoubleSeconds(step.data_wait));
  push_seconds_.Observe(absl::ToDoubleSeconds(step.push));
  pull_seconds_.Observe(absl::ToDoubleSeconds(step.pull));
  wait_seconds_.Observe(absl::ToDoubleSeconds(step.wait));
  applied_.Add(static_cast<double>(step.applied));
  discarded_.Add(static_cast<double>(step.discarded - step.quarantined));
  quarantined_.Add(static_cast<double>(step.quarantined));
  lost_.Add(static_cast<double>(step.lost));
  slack_.Set(static_cast<double>(step.slack));
  staleness_.Set(static_cast<double>(step.staleness_max));
  clock_.Set(static_cast<double>(step.clock.value()));
  gradient_norm_.Set(step.gradient_norm);
  loss_.Set(step.loss);
}

void TrainerMetrics::RecordEvaluation(double accuracy, absl::Duration took) {
  accuracy_.Set(accuracy);
  evaluation_seconds_.Observe(absl::ToDoubleSeconds(took));
}

}  // namespace slackline::worker
