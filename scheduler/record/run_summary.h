// Figures of a whole run, for programs: the contents of summary.json. docs/summary.md describes each field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/staleness_counts.h"
#include "scheduler/watch/evaluation_summary.h"
#include "scheduler/watch/progress.h"
#include "status.pb.h"

namespace slackline::scheduler {

// All processes of one name, over all their lives.
struct WorkerSummary {
  std::string name;
  // State of the latest life: live, joining, standby, left, dead.
  std::string state;
  double slowdown = 1;
  state::Totals totals;
};

// Mean average precisions of found objects, and of their masks if there are any.
struct ObjectsSummary {
  double map_50 = 0;
  std::optional<double> mask_map;
  std::optional<double> mask_map_50;
};

struct RunSummary {
  std::string name;
  // State of the job: starting, training, done, failed or stopped.
  std::string state;
  std::string reason;
  std::string mode;
  std::string optimizer;  // with its settings
  uint64_t seed = 0;
  // Numbers of workers, servers and epochs that the job wants.
  uint32_t workers = 0;
  uint32_t servers = 0;
  uint32_t epochs = 0;
  uint32_t epochs_done = 0;
  // Number of samples in an epoch, counted like `samples`.
  uint64_t epoch_samples = 0;
  // training.tokens_per_sample of the job.
  uint32_t tokens_per_sample = 0;
  double time_s = 0;
  // Time without the final evaluation.
  double train_s = 0;
  state::Totals totals;
  // Loss on training images of the last reporting interval.
  std::optional<double> loss;
  StalenessCounts staleness;
  uint64_t staleness_max = 0;
  // Last bound of ssp, and number of times that the scheduler has changed it.
  std::optional<uint64_t> staleness_bound;
  uint64_t staleness_bound_changes = 0;
  uint64_t slack_max = 0;
  uint64_t divergences = 0;
  uint64_t worker_deaths = 0;
  uint64_t samples_given_twice = 0;
  std::vector<WorkerSummary> worker_list;
  // Evaluations, oldest first.
  std::vector<EvaluationSummary> evaluations;
  wire::JobMetric metric;
  // Top-5 accuracy of the last evaluation; absent for fewer than 10 classes.
  std::optional<double> top5_accuracy;
  // Present if evaluations find objects: accuracies are then mean average precisions, and there are no losses.
  std::optional<ObjectsSummary> objects;
  // Energy of the run; absent if nothing is metered.
  std::optional<wire::EnergyView> energy;
};

// Returns the text of summary.json.
std::string ToJson(const RunSummary& summary);

}  // namespace slackline::scheduler
