// What each epoch took and came to: the rows of epochs.csv. Pure.
//
// An epoch ends when as many more samples are trained as there are, whoever trains them: its end does not depend on who
// holds the last range of a pass.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler.pb.h"
#include "scheduler/progress.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// Times in seconds; what is not known is absent.
struct EpochFigures {
  uint32_t epoch = 0;  // from 1
  // Since training began; and how many samples all workers had trained then, and of those applied.
  double end_s = 0;
  uint64_t samples = 0;
  uint64_t samples_applied = 0;
  // From the end of the epoch before, less evaluations in which nobody trained.
  double train_s = 0;
  // On training images, over the epoch.
  std::optional<double> loss;
  std::optional<double> accuracy;
  // Of the evaluation of its weights while training went on, and of the last one.
  double validation_s = 0;
  double test_s = 0;
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  std::optional<double> top5_accuracy;
  // Seconds of all workers together, by what they did: computed, had no batch, waited for servers; and how long pushes
  // and pulls were on their way, which overlap with the others and with each other.
  struct WorkerSeconds {
    double compute = 0;
    double data = 0;
    double wait = 0;
    double push = 0;
    double pull = 0;
  };
  WorkerSeconds seconds;
  // Of all devices, from the end of the epoch before.
  std::optional<double> joules;
};

// Thread-safety: none.
class EpochBook {
 public:
  // Epochs beyond it have no row.
  static constexpr size_t kRowsMax = 100'000;

  // Where the job stands.
  struct Standing {
    double time_s = 0;
    ProgressTotals totals;
    // Absent where nothing is metered.
    std::optional<double> joules;
  };

  // So many epochs are over. Those that were not before get rows; fewer than before change nothing.
  void Over(uint32_t epochs, const Standing& now);
  // That have got rows.
  uint32_t epochs() const { return epochs_; }
  // `alone`: nobody trained meanwhile.
  void Evaluated(const wire::EvaluationReport& report, bool alone);

  const std::vector<EpochFigures>& rows() const { return rows_; }
  // The rows, if they have changed since the call before.
  std::optional<std::vector<EpochFigures>> TakeNews();

  state::Epochs Save() const;
  void Restore(const state::Epochs& state);

 private:
  std::vector<EpochFigures> rows_;
  uint32_t epochs_ = 0;
  // At the end of the last epoch.
  Standing last_;
  // Since then, alone.
  double evaluating_s_ = 0;
  bool news_ = false;
};

}  // namespace slackline::scheduler
