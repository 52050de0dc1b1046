// EmbeddedWorker: a worker inside another program that computes the gradients itself, for example a training script in
// Python.
//
// The caller asks Next() what to do, fills push() from the samples of a range, and calls Step(). This class handles
// standby, rejoining after an expulsion, and the pull for the last evaluation. It does not use LibTorch.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/clock.h"
#include "common/time/timeouts.h"
#include "worker/client/client.h"
#include "worker/life/course.h"
#include "worker/life/life.h"
#include "worker/life/trainer_metrics.h"
#include "worker/scheduler_link/scheduler_link.h"

namespace slackline::worker {

// The next task of the caller.
struct EmbeddedRange {
  RangeWork work;
  std::vector<uint32_t> samples;  // samples of the range, in their order; empty for a stream
};
struct EmbeddedEnd {
  std::string reason;
};
using EmbeddedTask = std::variant<EmbeddedRange, EvaluationWork, EmbeddedEnd>;

// Facts about a step that only the caller knows.
struct EmbeddedStepInfo {
  uint64_t samples = 0;
  std::optional<double> loss = {};       // mean over the samples
  std::optional<uint64_t> correct = {};  // absent: unknown
  // L2 norm of the trained elements, if it is known; absent: measured here.
  std::optional<double> gradient_norm = {};
  // Learning rates, as PushInfo has them.
  std::vector<double> learning_rates = {};
  // Parts of the stream that the worker holds, with their positions after this step.
  std::vector<PartPosition> parts = {};
  uint64_t local_steps = 0;       // steps of the caller's own optimizer, if this is a round of local training
  absl::Duration compute = {};    // time since the last step
  absl::Duration data_wait = {};  // part of `compute` that was spent waiting for data
};

// Result of a step.
struct EmbeddedStep {
  enum class Outcome {
    // committed; fewer than options.window steps are still in flight, this one last. With a window of 1 its weights
    // have arrived
    kTaken,
    kRejoined,  // this worker was expelled and has rejoined: the step is lost, and so is the rest of the range
    kEnded,     // the job is over: the step is lost
  };
  Outcome outcome = Outcome::kTaken;
  // Report on the newest step that every shard has answered, for kTaken only. With a window of 1 this is the present
  // step. Clock 0 if no step was answered yet.
  StepReport report;
};

// State of the worker, for observers.
struct EmbeddedView {
  uint32_t worker = 0;  // number of the worker; 0 before it has joined
  uint64_t lives = 0;
  uint64_t steps = 0;  // total over all lives
  Clock64 clock;
  // Values of the last step: largest staleness over shards, and this worker's clock minus the slowest worker's clock.
  uint64_t staleness = 0;
  uint64_t slack = 0;
  // Reason why the job, or this worker, has ended.
  std::optional<std::string> ended;
};

// EmbeddedWorker keeps up to options.window steps in flight, as the trainer does. Each step has a part of the push
// memory, and a part of the parameters that receives the weights after it. Next() waits for all steps in flight;
// Leave() waits for them for a limited time.
//
// Thread-safety: calls of one thread at a time; Interrupt() and view() from any thread.
// Ownership:     borrows all parts, which must outlive it. The caller may write to push(), and to parameters() only
//                before the first Next(). After Next(), Step() and Leave() both return other parts.
// Threads:       one during Leave(), while that waits for steps in flight.
// Deadlines:     as the trainer's: each wait names whom it waits for, and ends if a server or the scheduler is silent
//                for too long.
class EmbeddedWorker {
 public:
  struct Options {
    uint64_t seed = 1;  // seed of the order of the data
    std::vector<TensorInfo> tensors;
    uint64_t train_samples = 0;
    // Set if the samples come from a stream: ranges then only count them.
    std::optional<StreamFacts> stream = {};
    uint32_t batch_size = 64;  // used for ranges that do not set a batch size
    uint32_t chunk_bytes = 1 << 20;
    // Options of ClientOptions. The last evaluation always pulls fp32.
    std::vector<CodecRun> push_runs = {};
    codec::Encoding pull_encoding = codec::Encoding::kFp32;
    SameHost same_host = SameHost::kSharedMemory;
    std::shared_ptr<const rpc::Protection> protection = nullptr;
    Timeouts timeouts = {};
    // Largest number of steps in flight.
    uint32_t window = 1;
    // True if the weights that steps pull are predicted ones. Evaluations then pull the weights themselves.
    bool predicted = false;
    // Time for which the job waits for a crashed server.
    absl::Duration server_return = absl::ZeroDuration();
  };
  using Connect =
      std::function<absl::StatusOr<std::unique_ptr<Client>>(const ClientOptions& options, const ShardMap& map)>;
  struct Parts {
    const TimeSource& time;
    SchedulerLink& link;
    TrainerMetrics& metrics;
    // Flat vectors, options.window of each kind, as long as all tensors. The first part of `parameters` holds the
    // model's initial weights; those of the first worker become the job's. `push` holds gradients.
    std::vector<absl::Span<float>> parameters;
    std::vector<absl::Span<float>> push;
    // Segment that contains `push`, if servers on this host may read it.
    std::shared_ptr<shm::Segment> push_segment = nullptr;
    Connect connect = Client::Create;
  };

  // Requires: options.window parts of parameters and of push, each as long as the tensors.
  EmbeddedWorker(Options options, const Parts& parts);

  // Returns the next task. Joins first if that has not happened, waits for the steps in flight, reports the previous
  // range as done if `range_done`, and waits for something to do. Before an evaluation, it pulls the newest parameters;
  // before the last evaluation, in fp32.
  //   kFailedPrecondition  the range is not done: neither Step() nor Skip() was called for all of its samples; or this
  //   worker was
  //                        expelled again and again
  //   others               the final answer of the scheduler or a server; later calls except Leave() return it again
  absl::StatusOr<EmbeddedTask> Next(bool range_done) ABSL_LOCKS_EXCLUDED(mutex_);

  // Leases parts of options.stream, as SchedulerLink::LeaseParts() does. Waits for the steps in flight, and reports
  // what they have reached. `ended`: parts that are read to their end, with all records in steps. Returns no parts if
  // this worker was expelled and has rejoined: view().lives then rises, and its range and parts are lost.
  //   as Next()
  absl::StatusOr<std::vector<PartLease>> LeaseParts(uint32_t wanted, const std::vector<PartPosition>& ended)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Leaves out samples of the range, whose gradients are of no use. Their share of the epoch is not trained.
  void Skip(uint64_t samples);

  // Promises that push()[from, end) does not change until Step() returns, so that it may be sent early. `from` falls
  // from call to call. Call this between Next() and Step(). Cheap.
  //   as Step(), which returns the error again
  absl::Status Ready(uint64_t from) ABSL_LOCKS_EXCLUDED(mutex_);

  // True if Ready() may have an effect, because the exchange of a large model continues between calls.
  bool leaves_early() const;

  // Indices of the current parts. push_part() is for the gradient of the next step. parameters_part() holds the newest
  // weights that have arrived; the client does not write to it in the meantime.
  size_t push_part() const { return (steps_finished_ + begun_.size()) % parts_.push.size(); }
  size_t parameters_part() const { return parameters_used_; }
  absl::Span<float> push() const { return parts_.push[push_part()]; }
  absl::Span<float> parameters() const { return parts_.parameters[parameters_used_]; }

  // Pushes push(), and pulls as the consistency mode requires. Blocks until fewer than options.window steps are in
  // flight. A later call may report the result of this step.
  //   kInternal            a gradient or the loss is not finite; nothing is applied. If parts of the gradient were sent
  //                        early (Ready()), later calls return the same error
  //   kFailedPrecondition  this worker was expelled again and again
  //   others               the final answer of a server or the scheduler; only Leave() is useful after that
  absl::StatusOr<EmbeddedStep> Step(const EmbeddedStepInfo& info) ABSL_LOCKS_EXCLUDED(mutex_);

  // Reports an evaluation. A result of 0 samples has no metrics. For the last evaluation, `files` names the files that
  // were written.
  absl::Status ReportEvaluation(const EvaluationResult& result) ABSL_LOCKS_EXCLUDED(mutex_);

  // Reports that the caller makes progress on something other than a step.
  void Alive() { parts_.link.progress().Alive(parts_.time.Now()); }
  // Sets figures of training, by names of the caller's. They are reported until the next call.
  void SetValues(NamedValues values) { parts_.link.progress().SetValues(std::move(values)); }
  // Reports that the caller begins or ends work that may take any time, such as an evaluation. Its silence is then no
  // stall.
  void SetBusyElsewhere(bool busy) { parts_.link.progress().SetWaiting(busy); }

  // Waits at most 2 s for the steps in flight, and says goodbye to all servers and the scheduler. Only view() may be
  // called afterwards; a second call has no effect. `in_order`: the steps used the range's samples in order and in the
  // numbers that they reported. Then only unanswered samples go to other workers; else the whole range does.
  void Leave(const std::string& reason, bool in_order = false) ABSL_LOCKS_EXCLUDED(mutex_);

  // Makes the call in progress, and later calls except Leave(), return kCancelled.
  void Interrupt(const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  EmbeddedView view() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A step that is committed and not finished.
  struct BegunStep {
    EmbeddedStepInfo info;
    double norm = 0;
    uint64_t range_done = 0;  // samples of the range up to and including this step
  };

  // Reports an error to the course, and joins again if that is the next act. Returns the error with which the worker
  // leaves.
  absl::Status JoinAgain(const absl::Status& why);
  // Reports to the course how the act has ended. The client and the range end with a life.
  void EndAct(const absl::Status& cause);
  // Performs the acts of the course that come before work.
  void JoinAndEnter();
  absl::Status Join();
  absl::Status Enter();
  // Performs the acts of the course up to one of the caller's.
  absl::StatusOr<EmbeddedTask> Work();
  absl::StatusOr<EmbeddedTask> TakeRange(const RangeWork& range);
  // True once the job is over.
  bool Ended() const;
  // Returns the positions that servers have answered, of the parts that this worker holds.
  std::vector<PartPosition> ReachedParts() const;
  // Blocks until at most `left` steps are in flight.
  absl::Status FinishSteps(size_t left) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for all steps in flight for a short time, and ignores failures.
  void FinishStepsSoon() ABSL_LOCKS_EXCLUDED(mutex_);
  // Pulls the weights for an evaluation.
  absl::Status PullNewest(bool final);
  absl::Status OpenStep();
  absl::Status CheckFinite(const EmbeddedStepInfo& info, double norm) const;
  void Record(const BegunStep& step, const StepReport& report, absl::Duration wait) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<std::unique_ptr<Client>> MakeClient(bool reader);
  void CloseClient(const std::string& reason);

  const Options options_;
  const Parts parts_;
  Life life_;
  Course course_;
  // Members of the caller's thread.
  bool step_open_ = false;
  bool left_early_ = false;      // true if parts of the open step may have been sent
  std::deque<BegunStep> begun_;  // steps in flight, oldest first
  uint64_t steps_finished_ = 0;
  size_t parameters_used_ = 0;
  StepReport last_report_;
  // Failure of a step in flight. Every later call returns it.
  absl::Status failure_;
  std::optional<RangeWork> range_;  // range in training
  uint64_t range_done_ = 0;         // samples of the range, including those in flight
  uint64_t range_answered_ = 0;     // samples of the range that servers have answered
  absl::Time range_begin_;
  // Parts of the stream that this life holds, with the positions that servers have answered.
  std::map<uint64_t, uint64_t> part_positions_;
  double samples_per_second_ = 0;
  std::vector<uint32_t> order_;
  std::optional<uint32_t> order_epoch_;
  bool left_ = false;

  mutable absl::Mutex mutex_;
  EmbeddedView view_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::worker
