// Decides what each worker does next: train on a range, measure accuracy, stand by, or leave. Pure.
//
// Workers train on ranges. Evaluations become due by the number of samples that are trained or applied, whichever
// workers train them. A worker then measures the test accuracy of the weights that it has. When all ranges are done,
// one worker (live or on standby) makes the final evaluation; then all leave. If a worker dies before it has done its
// work, another one does that work. Evaluations wait for a fast worker, since the others may have to wait for the
// worker that evaluates.
//
// A job with a stream has ranges too, which count its samples. A worker gets a range only if it has, or can get, a part
// of the stream to read.
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
#include "scheduler/work/data_ranges.h"
#include "scheduler/work/stream_parts.h"

namespace slackline::scheduler {

struct EvaluationWork {
  // Number of epochs completed.
  uint32_t epoch = 0;
  bool final = false;
  // Point of evaluate_every_samples; 0: the end of an epoch.
  uint64_t at_samples = 0;

  friend bool operator==(const EvaluationWork&, const EvaluationWork&) = default;
};

// The worker has nothing to do now. It must leave the clock, or it would hold up the others.
struct StandbyWork {};
// A range is free for a worker on standby, which must become a member first.
struct RegisterAgainWork {};
// The job is done.
struct LeaveWork {};

using Work = std::variant<DataRange, EvaluationWork, StandbyWork, RegisterAgainWork, LeaveWork>;

class Tasks {
 public:
  struct Config {
    DataRanges::Config ranges;
    // Number of epochs between evaluations; 0: only after the last epoch.
    uint32_t evaluate_every_epochs = 1;
    // Number of applied samples between evaluations; above 0, epochs do not count.
    uint64_t evaluate_every_samples = 0;
  };

  // Progress of training.
  struct Standing {
    // Samples trained; at least those of the ranges that are done.
    uint64_t samples_trained = 0;
    // Samples that are in the weights.
    uint64_t samples_applied = 0;
  };

  struct Asker {
    Holder holder;
    // False if the worker is on standby.
    bool live = false;
    // Pace of the worker; its batch is that of a push.
    DataRanges::Pace pace = {};
    // True unless a worker that could evaluate in its place is much faster.
    bool swift = true;
  };

  explicit Tasks(const Config& config) : config_(config), ranges_(config.ranges) {}

  // Returns the next work. Asking again without having reported returns the same work again.
  Work Next(const Asker& asker);

  // Notes how far training has got: evaluations may become due.
  void Reached(const Standing& now);

  // Notes a finished range, as DataRanges::Done() does.
  absl::Status FinishRange(const Holder& holder, RangeId range);
  // Notes a range that the worker leaves, as DataRanges::DoneTo() does.
  absl::Status LeaveRange(const Holder& holder, RangeId range, uint64_t done_to);

  // Leases parts of a stream, as StreamParts::Lease() does, after noting the positions. The first stream is the job's.
  //   kInvalidArgument  as StreamParts::Check() and CheckSame()
  absl::StatusOr<std::vector<wire::PartLease>> LeaseParts(const Holder& holder, const wire::LeasePartsRequest& request);
  // Note positions in parts, as StreamParts does. Without a stream they change nothing.
  void ReachedParts(const Holder& holder, const StreamParts::Positions& positions);
  void FencedParts(ServerId server, const wire::FencedWorker& worker);

  // Notes that the result has arrived. Repeating it changes nothing.
  // Returns false for a repetition.
  //   kFailedPrecondition  this evaluation is not this worker's to make
  absl::StatusOr<bool> FinishEvaluation(const Holder& holder, const EvaluationWork& work);

  // Notes that the worker is dead or has left: another one may evaluate in its place. Its range stays leased until
  // Fenced().
  void Gone(const Holder& holder);
  // Notes that nothing of this life can arrive any more. `shards`: number of the job's shards. Returns the number of
  // samples that are given out again.
  uint64_t Fenced(const Holder& holder, uint32_t shards = 0);

  // Ends training once what is given out is done: the final evaluation follows.
  void EndEarly();

  // True if an evaluation is to be made, and no worker makes it yet.
  bool EvaluationDue() const { return !complete_ && (due_ || (ranges_.Finished() && assigned_.empty())); }
  void Save(state::Tasks& state) const;
  // Continues a job from a saved state, as DataRanges::Restore() does.
  void Restore(const state::Tasks& state);
  // Continues a run with other workers. Requires: the tasks are still as constructed. Leased ranges are given out
  // again. Epochs that were added since are still to be done, and so are those that an early end has left out.
  void GoOnFrom(const state::Tasks& state);
  // Returns the workers that have something to do.
  std::vector<Holder> Holders() const;

  // True if the worker has something to do, so that silence of its trainer is a stall.
  bool Busy(const Holder& holder) const;
  // True once the final evaluation is made.
  bool Complete() const { return complete_; }
  bool ReadsStream() const { return stream_.has_value(); }
  // True if the job's stream is read to its end, as often as the script wants.
  bool StreamEnded() const { return stream_ && stream_->Finished(); }
  const DataRanges& ranges() const { return ranges_; }

 private:
  Work Final(const Asker& asker);
  // Returns the number of samples from one evaluation to the next; 0: none before the end.
  uint64_t EvaluateEvery() const;
  // Returns how many samples may be leased before the end of an epoch, or a point of evaluate_every_samples. 0 while
  // all are leased but not yet known to be trained: workers then ask after each batch, so that one of them does so in
  // time.
  uint64_t LeftToMark() const;

  const Config config_;
  DataRanges ranges_;
  std::optional<StreamParts> stream_;
  // Evaluation that nobody has taken; a later one replaces it, since the weights have moved on.
  std::optional<EvaluationWork> due_;
  // Latest standing given to Reached().
  Standing standing_;
  // Number of samples, counted like the job's evaluation points: evaluations up to here were made due.
  uint64_t reached_ = 0;
  std::map<Holder, EvaluationWork> assigned_;
  // Last report of each worker, to recognise a repetition.
  std::map<Holder, EvaluationWork> reported_;
  bool complete_ = false;
};

}  // namespace slackline::scheduler
