// A report of a run: a row of metrics.csv, a point on each curve.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/staleness_counts.h"
#include "common/metrics/measured.h"

namespace slackline::scheduler {

struct Report {
  // Time since training began.
  double time_s = 0;
  // Epoch in progress, counted from 1.
  uint32_t epoch = 0;
  // Steps and samples of all workers.
  uint64_t step = 0;
  uint64_t samples = 0;
  // Loss and accuracy on training images since the previous report; absent until something was trained.
  std::optional<double> loss;
  std::optional<double> accuracy;
  // Loss and accuracy on test images, if an evaluation has come in since the previous report.
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  // Other figures of a script: on training samples as each worker reported them last, the mean over live workers; and
  // of that evaluation.
  NamedValues train_values = {};
  NamedValues test_values = {};
  // True if test_accuracy is a mean average precision.
  bool finds_objects = false;
  // Confusion matrix of that evaluation, by label and prediction; empty for many classes.
  std::vector<uint64_t> confusion = {};
  // Rate that the last push names, or else the rate by the schedule for a step of one batch: before the factors of
  // groups, stale pushes and larger steps.
  double learning_rate = 0;
  double samples_per_second = 0;
  double staleness_mean = 0;
  uint64_t staleness_max = 0;
  uint64_t slack = 0;
  // Largest norm of a gradient since the previous report.
  double gradient_norm_max = 0;
  // Staleness of the answers since the previous report.
  StalenessCounts staleness = {};
  uint64_t live_workers = 0;
  // Number of servers with shards; and number of times that shards have changed hands, by this scheduler.
  uint64_t live_servers = 0;
  uint64_t shard_moves = 0;
  // Bound of ssp, and number of times that the scheduler has changed it.
  std::optional<uint64_t> staleness_bound;
  uint64_t staleness_bound_changes = 0;
  // Number of times that training has left the band that the job allows.
  uint64_t divergences = 0;
  // Totals since the beginning.
  uint64_t worker_deaths = 0;
  uint64_t samples_given_twice = 0;
  // Checkpoints made by this scheduler, and those that it could not make; seconds since the last whole one.
  uint64_t checkpoints = 0;
  uint64_t checkpoints_failed = 0;
  std::optional<double> checkpoint_age_s;
};

}  // namespace slackline::scheduler
