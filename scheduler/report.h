// One report of a run: a row of metrics.csv, a point on each curve.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/staleness_counts.h"

namespace slackline::scheduler {

struct Report {
  // Since training began.
  double time_s = 0;
  // In progress, counted from 1.
  uint32_t epoch = 0;
  // Steps and samples of all workers.
  uint64_t step = 0;
  uint64_t samples = 0;
  // On training images since the report before; absent until something was trained.
  std::optional<double> loss;
  std::optional<double> accuracy;
  // On test images, when an evaluation has come in since the report before.
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  // It is a mean average precision.
  bool finds_objects = false;
  // Of that evaluation, by label and prediction; empty for many classes.
  std::vector<uint64_t> confusion = {};
  double samples_per_second = 0;
  double staleness_mean = 0;
  uint64_t staleness_max = 0;
  uint64_t slack = 0;
  // Of a gradient since the report before.
  double gradient_norm_max = 0;
  // Answers since the report before.
  StalenessCounts staleness = {};
  uint64_t live_workers = 0;
  // Servers with shards; and how often shards have changed hands, by this scheduler.
  uint64_t live_servers = 0;
  uint64_t shard_moves = 0;
  // ssp: the bound, and how often the scheduler has changed it.
  std::optional<uint64_t> staleness_bound;
  uint64_t staleness_bound_changes = 0;
  // How often training has left the band that the job allows.
  uint64_t divergences = 0;
  // Since the beginning.
  uint64_t worker_deaths = 0;
  uint64_t samples_given_twice = 0;
  // Made by this scheduler, and that it could not make; seconds since the last whole one.
  uint64_t checkpoints = 0;
  uint64_t checkpoints_failed = 0;
  std::optional<double> checkpoint_age_s;
};

}  // namespace slackline::scheduler
