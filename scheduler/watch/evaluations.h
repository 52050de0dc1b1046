// Evaluations of a run: the figures of each, whether one is the best so far, and whether training is to end. Pure.
//
// Thread-safety: none.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "job.pb.h"
#include "scheduler.pb.h"
#include "scheduler/base/report.h"
#include "scheduler/watch/evaluation_summary.h"
#include "scheduler_state.pb.h"
#include "status.pb.h"

namespace slackline::scheduler {

class Evaluations {
 public:
  struct Judgement {
    std::string told;  // the evaluation, for people
    // Says, once a run, that settings compare figures that evaluations do not measure.
    std::optional<std::string> warning;
    bool best = false;
    std::optional<std::string> ends;  // reason why training is to end early
  };

  explicit Evaluations(job::Job job) : job_(std::move(job)) {}

  // Notes an evaluation by `by` of the weights that the job had at `begun`.
  Judgement Note(const wire::EvaluationReport& report, const EvaluationSummary& begun, const std::string& by);

  // Returns the last report; without its classes if it is large, and without its confusion once that was reported.
  const std::optional<wire::EvaluationReport>& last() const { return last_; }
  // All evaluations, oldest first.
  const std::vector<EvaluationSummary>& all() const { return all_; }
  // Returns the name of what accuracies measure: accuracy or mean average precision.
  std::string Metric() const;
  // Returns the job's metric, with its value in the last evaluation and the best one.
  wire::JobMetric JobMetric() const;
  // Adds the job's metric in each evaluation to `curve`: every second, every third and so on, the last one among them,
  // if there are more than `points_max`.
  void FillCurve(size_t points_max, wire::JobCurve& curve) const;
  // Adds to `report` what the last evaluation has said, once.
  void Report(scheduler::Report& report);

  void Save(state::Scheduler& state) const;
  // Continues from the state of a scheduler that has died, or with `anew` from that in a checkpoint.
  void Restore(const state::Scheduler& state, bool anew);

 private:
  const job::Job job_;
  std::optional<wire::EvaluationReport> last_;
  bool reported_ = true;
  std::vector<EvaluationSummary> all_;
  size_t before_ = 0;  // number of those of the run that this one continues
};

}  // namespace slackline::scheduler
