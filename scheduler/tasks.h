// What each worker does next: train on a range, measure accuracy, stand by, or leave. Pure.
//
// Ranges come first. Evaluations become due by how many samples are trained or applied, whoever trains them; one worker
// then measures the test accuracy of the weights that it has. When all ranges are done, one worker (live or standing
// by) makes the final evaluation; then all leave. What a worker was to do and did not, because it died, another one
// does. Evaluations wait for a swift worker, since the others may have to wait for whoever evaluates.
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/data_ranges.h"

namespace slackline::scheduler {

struct EvaluationWork {
  // Epochs completed.
  uint32_t epoch = 0;
  bool final = false;
  // Which point of evaluate_every_samples; 0: the end of an epoch.
  uint64_t at_samples = 0;

  friend bool operator==(const EvaluationWork&, const EvaluationWork&) = default;
};

// Nothing to do now. The worker must leave the clock, or it would hold the others.
struct StandbyWork {};
// There is a range for a worker on standby; it must become a member first.
struct RegisterAgainWork {};
// The job is done.
struct LeaveWork {};

using Work = std::variant<DataRange, EvaluationWork, StandbyWork, RegisterAgainWork, LeaveWork>;

class Tasks {
 public:
  struct Config {
    DataRanges::Config ranges;
    // 0: only after the last epoch.
    uint32_t evaluate_every_epochs = 1;
    // Of samples applied; above 0, epochs do not count.
    uint64_t evaluate_every_samples = 0;
  };

  // How far training is.
  struct Standing {
    // At least those of the ranges that are done.
    uint64_t samples_trained = 0;
    // In the weights.
    uint64_t samples_applied = 0;
  };

  struct Asker {
    Holder holder;
    // Else on standby.
    bool live = false;
    // Its batch is that of a push.
    DataRanges::Pace pace = {};
    // No worker that could evaluate in its place is much faster.
    bool swift = true;
  };

  explicit Tasks(const Config& config) : config_(config), ranges_(config.ranges) {}

  // Asking again without having reported gives the same work again.
  Work Next(const Asker& asker);

  // Training has got so far: evaluations may be due by it.
  void Reached(const Standing& now);

  // As DataRanges::Done().
  absl::Status FinishRange(const Holder& holder, RangeId range);
  // As DataRanges::DoneTo().
  absl::Status LeaveRange(const Holder& holder, RangeId range, uint64_t done_to);

  // The result has arrived. Saying it again changes nothing.
  // Returns false for a repetition.
  //   kFailedPrecondition  this evaluation is not this worker's to make
  absl::StatusOr<bool> FinishEvaluation(const Holder& holder, const EvaluationWork& work);

  // The worker is dead or has left: another one may evaluate in its place. Its range stays leased until Fenced().
  void Gone(const Holder& holder);
  // Nothing of this life can arrive any more. Returns the samples that are given out again.
  uint64_t Fenced(const Holder& holder) { return ranges_.Release(holder); }

  // Training ends when what is given out is done: the final evaluation follows.
  void EndEarly();

  // Somebody is to evaluate, and nobody does yet.
  bool EvaluationDue() const { return !complete_ && (due_ || (ranges_.Finished() && assigned_.empty())); }
  void Save(state::Tasks& state) const;
  // As DataRanges::Restore().
  void Restore(const state::Tasks& state);
  // Of a run that goes on with other workers, for tasks that are still as they were made: what was leased is given out
  // again. Epochs that were added since are still to be done, and those that an early end has left out.
  void GoOnFrom(const state::Tasks& state);
  // Who has something to do.
  std::vector<Holder> Holders() const;

  // The worker has something to do, so that silence of its trainer is a stall.
  bool Busy(const Holder& holder) const;
  // The final evaluation is made.
  bool Complete() const { return complete_; }
  const DataRanges& ranges() const { return ranges_; }

 private:
  Work Final(const Asker& asker);
  // Samples from one evaluation to the next; 0: none before the end.
  uint64_t EvaluateEvery() const;
  // Samples that may be leased before the end of an epoch, or a point of evaluate_every_samples. 0 while all are leased
  // and it is not known yet that they are trained: workers then ask after each batch, and somebody does so in time.
  uint64_t LeftToMark() const;

  const Config config_;
  DataRanges ranges_;
  // An evaluation that nobody has taken; a later one replaces it, since the weights have moved on.
  std::optional<EvaluationWork> due_;
  // The latest of what Reached() was told.
  Standing standing_;
  // Samples, as the job's grid counts them: what is due up to here was made due.
  uint64_t reached_ = 0;
  std::map<Holder, EvaluationWork> assigned_;
  // What each worker reported last, to know a repetition.
  std::map<Holder, EvaluationWork> reported_;
  bool complete_ = false;
};

}  // namespace slackline::scheduler
