// What each epoch took and came to: the rows of epochs.csv. Pure.
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
  // Since training began.
  double end_s = 0;
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

  // Epochs up to `epoch` are complete, of which `completed` were not before.
  void Completed(uint32_t epoch, uint32_t completed, const Standing& now);
  // `alone`: nobody trained meanwhile.
  void Evaluated(const wire::EvaluationReport& report, bool alone);

  const std::vector<EpochFigures>& rows() const { return rows_; }
  // The rows, if they have changed since the call before.
  std::optional<std::vector<EpochFigures>> TakeNews();

  state::Epochs Save() const;
  void Restore(const state::Epochs& state);

 private:
  std::vector<EpochFigures> rows_;
  // At the end of the last epoch.
  Standing last_;
  // Since then, alone.
  double evaluating_s_ = 0;
  bool news_ = false;
};

}  // namespace slackline::scheduler
