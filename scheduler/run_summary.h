// A whole run in figures, for programs: what summary.json holds. docs/summary.md describes each field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/staleness_counts.h"
#include "scheduler/progress.h"
#include "status.pb.h"

namespace slackline::scheduler {

// A measurement of accuracy on the test images.
struct EvaluationSummary {
  uint32_t epoch = 0;            // completed ones
  double time_s = 0;             // since training began
  uint64_t samples = 0;          // trained until then, of all workers
  uint64_t samples_applied = 0;  // of those
  double accuracy = 0;
  double loss = 0;
  bool map = false;  // of objects: accuracy is their mean average precision, and there is no loss
};

// All processes of one name, all their lives.
struct WorkerSummary {
  std::string name;
  // Of the latest life: live, joining, standby, left, dead.
  std::string state;
  double slowdown = 1;
  ProgressTotals totals;
};

// Mean average precisions; of masks where there are some.
struct ObjectsSummary {
  double map_50 = 0;
  std::optional<double> mask_map;
  std::optional<double> mask_map_50;
};

struct RunSummary {
  std::string name;
  // starting, training, done, failed, stopped
  std::string state;
  std::string reason;
  std::string mode;
  uint64_t seed = 0;
  // As the job wants them.
  uint32_t workers = 0;
  uint32_t servers = 0;
  uint32_t epochs = 0;
  uint32_t epochs_done = 0;
  // Of an epoch, as `samples` counts them.
  uint64_t epoch_samples = 0;
  double time_s = 0;
  // Without the final evaluation.
  double train_s = 0;
  ProgressTotals totals;
  // On training images of the last reporting interval.
  std::optional<double> loss;
  StalenessCounts staleness;
  uint64_t staleness_max = 0;
  // ssp: the last bound, and how often the scheduler has changed it.
  std::optional<uint64_t> staleness_bound;
  uint64_t staleness_bound_changes = 0;
  uint64_t slack_max = 0;
  uint64_t divergences = 0;
  uint64_t worker_deaths = 0;
  uint64_t samples_given_twice = 0;
  std::vector<WorkerSummary> worker_list;
  // Oldest first.
  std::vector<EvaluationSummary> evaluations;
  // Of the last one; absent for fewer than 10 classes.
  std::optional<double> top5_accuracy;
  // Where evaluations find objects: accuracies are mean average precisions, and there are no losses.
  std::optional<ObjectsSummary> objects;
  // Absent where nothing is metered.
  std::optional<wire::EnergyView> energy;
};

// The text of summary.json.
std::string ToJson(const RunSummary& summary);

}  // namespace slackline::scheduler
