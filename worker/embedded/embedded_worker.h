// A worker inside somebody else's program, which computes the gradients itself: a training script in Python.
//
// The caller asks Next() what to do, fills push() from the samples of a range, and calls Step(). Standing by, joining
// again after an expulsion, and the pull for the last evaluation happen in here. LibTorch stays out.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/timeouts.h"
#include "worker/client/client.h"
#include "worker/scheduler_link.h"
#include "worker/trainer_metrics.h"

namespace slackline::worker {

// What the caller is to do next.
struct EmbeddedRange {
  RangeWork work;
  std::vector<uint32_t> samples;  // those of the range, in their order
};
struct EmbeddedEnd {
  std::string reason;
};
using EmbeddedTask = std::variant<EmbeddedRange, EvaluationWork, EmbeddedEnd>;

// What the caller knows of a step.
struct EmbeddedStepInfo {
  uint64_t samples = 0;
  double loss = 0;                  // mean over the samples
  std::optional<uint64_t> correct;  // absent: not known
  absl::Duration compute;           // since the last step
  absl::Duration data_wait;         // of it
};

// What became of it.
struct EmbeddedStep {
  enum class Outcome {
    kTaken,     // fewer than options.window steps are in flight, of which it is the last; with 1: its weights are there
    kRejoined,  // this worker had been put out, and is in again: the step is lost, and so is what was left of the range
    kEnded,     // the job is over: the step is lost
  };
  Outcome outcome = Outcome::kTaken;
  // kTaken only: of the newest step that every shard has answered; with a window of 1, of this one. Of none: clock 0.
  StepReport report;
};

// For whoever looks on.
struct EmbeddedView {
  uint32_t worker = 0;  // its number; 0 before it has joined
  uint64_t lives = 0;
  uint64_t steps = 0;  // over all lives
  Clock64 clock;
  // Of the last step: largest staleness over shards, and this worker's clock minus the slowest's.
  uint64_t staleness = 0;
  uint64_t slack = 0;
  // The job is over, or this worker is: why.
  std::optional<std::string> ended;
};

// Up to options.window steps are in flight, as the trainer has them: each has a part of the push memory, and of the
// parameters one that the weights after it are written to. Next() waits for all of them, and so does Leave(), for a
// while.
//
// Thread-safety: calls of one thread at a time; Interrupt() and view() from any.
// Ownership:     borrows all parts; they outlive it. The caller may write to push(), and to
//                parameters() only before the first Next(). Both are others after Next(), Step() and Leave().
// Threads:       one for Leave(), as long as that waits for steps in flight.
// Deadlines:     as the trainer's: each wait names whom it waits for, and ends when a server or the scheduler has been
//                silent for too long.
class EmbeddedWorker {
 public:
  struct Options {
    uint64_t seed = 1;  // of the order of the data
    std::vector<TensorInfo> tensors;
    uint64_t train_samples = 0;
    uint32_t batch_size = 64;  // where a range does not say another one
    uint32_t chunk_bytes = 1 << 20;
    // As in ClientOptions. The last evaluation pulls fp32 in any case.
    std::vector<CodecRun> push_runs = {};
    codec::Encoding pull_encoding = codec::Encoding::kFp32;
    SameHost same_host = SameHost::kSharedMemory;
    std::shared_ptr<const rpc::Protection> protection = nullptr;
    Timeouts timeouts = {};
    // Steps that may be in flight.
    uint32_t window = 1;
    // How long the job waits for a server that died.
    absl::Duration server_return = absl::ZeroDuration();
    // Lives without a single step, one after the other, before it gives up.
    int fruitless_lives_max = 3;
  };
  using Connect =
      std::function<absl::StatusOr<std::unique_ptr<Client>>(const ClientOptions& options, const ShardMap& map)>;
  struct Parts {
    const TimeSource& time;
    SchedulerLink& link;
    TrainerMetrics& metrics;
    // Flat vectors, as long as all tensors, options.window of each: weights, the first part with those that the model
    // begins with, of which the first worker's are the job's; and what is pushed.
    std::vector<absl::Span<float>> parameters;
    std::vector<absl::Span<float>> push;
    // Where push lies, if servers of this host may read it.
    std::shared_ptr<shm::Segment> push_segment = nullptr;
    Connect connect = Client::Create;
  };

  // Requires: options.window parts of parameters and push, as long as the tensors.
  EmbeddedWorker(Options options, const Parts& parts);
  ~EmbeddedWorker();

  // Joins where it has not yet, waits for the steps in flight, reports that the range it gave last is done, where
  // `range_done`, and waits for something to do. Before an evaluation, parameters are the newest; before the last one,
  // in fp32.
  //   kFailedPrecondition  the range is not done: Step() was not called for all of its samples; or put out again and
  //                        again
  //   others               the last word of the scheduler or a server; it stays with later calls but Leave()
  absl::StatusOr<EmbeddedTask> Next(bool range_done) ABSL_LOCKS_EXCLUDED(mutex_);

  // push()[from, end) stays as it is from now on, until Step() returns: it may leave already. `from` falls from call to
  // call. Between Next() and Step(). Cheap.
  //   as Step(), which says it again
  absl::Status Ready(uint64_t from) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether Ready() may have any effect: the exchange of a large model goes on between calls.
  bool leaves_early() const;

  // Which parts of the memory: the one for the gradient of the next step, and the one with the newest weights that are
  // there, which nobody writes to meanwhile.
  size_t push_part() const { return (steps_finished_ + begun_.size()) % parts_.push.size(); }
  size_t parameters_part() const { return parameters_used_; }
  absl::Span<float> push() const { return parts_.push[push_part()]; }
  absl::Span<float> parameters() const { return parts_.parameters[parameters_used_]; }

  // Pushes push(), and pulls as the consistency mode says; waits until fewer than options.window steps are in flight.
  // What became of this one a later call may say.
  //   kInternal            a gradient or the loss is not finite; nothing is applied. Where parts of it had left early
  //                        (Ready()), later calls say the same
  //   kFailedPrecondition  put out again and again
  //   others               the last word of the scheduler or a server; this worker is of no use then, but to Leave()
  absl::StatusOr<EmbeddedStep> Step(const EmbeddedStepInfo& info) ABSL_LOCKS_EXCLUDED(mutex_);

  // What came of an evaluation; of 0 samples: nothing. With the last one, `files` are those that were written.
  absl::Status ReportEvaluation(const EvaluationResult& result) ABSL_LOCKS_EXCLUDED(mutex_);

  // The caller is at work on something that is no step, and moves on.
  void Alive() { parts_.link.progress().Alive(parts_.time.Now()); }
  // The caller is at work on something that may take any time, such as an evaluation: its silence is no stall.
  void SetBusyElsewhere(bool busy) { parts_.link.progress().SetWaiting(busy); }

  // Waits for the steps in flight, but 2 s at most, and says goodbye to all. Nothing but view() may follow. Again
  // changes nothing. `in_order`: steps had the samples of the range in its order, as many as they said. Then only what
  // has no answer goes to others, else all of the range.
  void Leave(const std::string& reason, bool in_order = false) ABSL_LOCKS_EXCLUDED(mutex_);

  // Makes the call in progress, and later ones but Leave(), return kCancelled.
  void Interrupt(const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  EmbeddedView view() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Stopped {
    absl::Status status;  // OK: the job is over
    std::string reason;
  };
  // Committed and not finished.
  struct BegunStep {
    EmbeddedStepInfo info;
    double norm = 0;
    uint64_t range_done = 0;  // with it
  };

  // After kFailedPrecondition; as often as lives may be fruitless.
  absl::Status JoinAgain(absl::Status why);
  absl::Status Enter();
  absl::StatusOr<EmbeddedTask> Work(RangeId done);
  absl::StatusOr<EmbeddedTask> TakeRange(const RangeWork& range);
  // What a call that failed with `status` means: the expulsion or the end that was behind it.
  absl::Status Cause(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Ended() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until no more than `left` are in flight.
  absl::Status FinishSteps(size_t left) ABSL_LOCKS_EXCLUDED(mutex_);
  // As FinishSteps(0), but for a short time, and whatever comes of it.
  void FinishStepsSoon() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status PullNewest(bool final);
  absl::Status OpenStep();
  absl::Status CheckFinite(const EmbeddedStepInfo& info, double norm) const;
  void Record(const BegunStep& step, const StepReport& report, absl::Duration wait) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status OpenClient(bool reader) ABSL_LOCKS_EXCLUDED(mutex_);
  void CloseClient(const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs a call of the client's that Interrupt() and being expelled can cut short.
  template <typename Call>
  auto Await(Call call) -> decltype(call());
  absl::Status BeginWait() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndWait() ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop(const absl::Status& status, const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLifeEnd(const absl::Status& status, const std::string& reason);
  void OnMap(const ShardMap& map) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Duration silence_max() const;

  const Options options_;
  const Parts parts_;
  // The caller's thread.
  Membership life_;
  ShardMap map_;
  int fruitless_ = 0;
  bool step_open_ = false;
  bool left_early_ = false;      // parts of it may have
  std::deque<BegunStep> begun_;  // in flight, oldest first
  uint64_t steps_finished_ = 0;
  size_t parameters_used_ = 0;
  StepReport last_report_;
  // Of a step that was in flight: what every later call says.
  absl::Status failure_;
  std::optional<RangeWork> range_;  // being trained
  uint64_t range_done_ = 0;         // samples of it, those in flight among them
  uint64_t range_answered_ = 0;     // samples of it
  absl::Time range_begin_;
  double samples_per_second_ = 0;
  std::vector<uint32_t> order_;
  std::optional<uint32_t> order_epoch_;
  bool left_ = false;

  mutable absl::Mutex mutex_;
  // Replaced by the caller's thread only, which therefore reads it without the lock.
  std::unique_ptr<Client> client_;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // in a call of client_
  bool late_ ABSL_GUARDED_BY(mutex_) = false;     // Leave() has waited long enough
  std::optional<ShardMap> newest_map_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> expelled_ ABSL_GUARDED_BY(mutex_);
  std::optional<Stopped> stopped_ ABSL_GUARDED_BY(mutex_);
  EmbeddedView view_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::worker
