// Figures of each epoch: the rows of epochs.csv. Pure.
//
// An epoch ends when the workers together have trained as many more samples as there are. Its end therefore does not
// depend on who holds the last range of a pass.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/metrics/measured.h"
#include "scheduler.pb.h"
#include "scheduler/watch/progress.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// Figures of one epoch. Times are in seconds; a figure that is not known is absent.
struct EpochFigures {
  uint32_t epoch = 0;  // counted from 1
  // Time from the beginning of training to the end of the epoch; samples that all workers had trained then, and those
  // of them that were applied.
  double end_s = 0;
  uint64_t samples = 0;
  uint64_t samples_applied = 0;
  // Time since the end of the previous epoch, without evaluations during which nobody trained.
  double train_s = 0;
  // Loss and accuracy on training images, over the epoch.
  std::optional<double> loss;
  std::optional<double> accuracy;
  // Durations of the evaluation of the epoch's weights while training continued, and of the final evaluation.
  double validation_s = 0;
  double test_s = 0;
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  std::optional<double> top5_accuracy;
  NamedValues test_values = {};  // of a script
  // Seconds of all workers together, by activity: computed, had no batch, waited for servers. Also the time for which
  // pushes and pulls were on their way, which overlaps with the other figures and with each other.
  struct WorkerSeconds {
    double compute = 0;
    double data = 0;
    double wait = 0;
    double push = 0;
    double pull = 0;
  };
  WorkerSeconds seconds;
  // Energy of all devices since the end of the previous epoch.
  std::optional<double> joules;
};

// Thread-safety: none.
class EpochBook {
 public:
  // Largest number of rows; later epochs have none.
  static constexpr size_t kRowsMax = 100'000;

  // Progress of the job at some time.
  struct Standing {
    double time_s = 0;
    state::Totals totals;
    // Energy so far; absent if nothing is metered.
    std::optional<double> joules;
  };

  // Notes that `epochs` epochs are over, and adds rows for those that were not before. A smaller number than before
  // changes nothing.
  void Over(uint32_t epochs, const Standing& now);
  // Number of epochs that are over.
  uint32_t epochs() const { return epochs_; }
  // Notes an evaluation. `alone`: true if nobody trained meanwhile.
  void Evaluated(const wire::EvaluationReport& report, bool alone);

  const std::vector<EpochFigures>& rows() const { return rows_; }
  // Returns the rows if they have changed since the previous call.
  std::optional<std::vector<EpochFigures>> TakeNews();

  state::Epochs Save() const;
  void Restore(const state::Epochs& state);

 private:
  std::vector<EpochFigures> rows_;
  uint32_t epochs_ = 0;
  // Standing at the end of the last epoch.
  Standing last_;
  // Seconds since then of evaluations during which nobody trained.
  double evaluating_s_ = 0;
  bool news_ = false;
};

}  // namespace slackline::scheduler
