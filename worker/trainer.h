// The worker's loop: join, pull, then range after range of batches until there is no more work.
//
// A life begins with Join() and ends with the job, on standby, or when this worker was fenced; then it joins again.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/timeouts.h"
#include "worker/client/client.h"
#include "worker/data/dataset.h"
#include "worker/data/prefetcher.h"
#include "worker/evaluator.h"
#include "worker/group/local_group.h"
#include "worker/local/local_round.h"
#include "worker/loss_scaler.h"
#include "worker/push_mean.h"
#include "worker/scheduler_link.h"
#include "worker/step_memory.h"
#include "worker/trace.h"
#include "worker/trainer_metrics.h"

namespace slackline::worker {

// Thread-safety: Run() on one thread; Stop() from any.
// Ownership:     borrows all parts; they outlive it.
class Trainer {
 public:
  struct Options {
    // Of the order of the data.
    uint64_t seed = 1;
    // Evaluations, and what the run leaves, are of the weights' exponential average, which the servers keep.
    bool averaged = false;
    // Epochs have each class as often as any other.
    bool balanced = false;
    // Where a range does not say another one.
    uint32_t batch_size = 64;
    // Batches of a push.
    uint32_t accumulate = 1;
    // Where it is on, a push is a round of it; not with accumulate or window above 1.
    LocalConfig local = {};
    uint32_t chunk_bytes = 1 << 20;
    // Forward begins while weights are on their way, where the model can: each layer waits for its own. Only of plain
    // steps: with a window of 1, one batch a push, and neither local training, loss scaling nor slowdown.
    bool pull_by_layers = false;
    // Steps in flight: with 2, a batch is computed while the push and pull of the one before are on their way.
    uint32_t window = 1;
    // Where it is on, a step whose gradient overflows is skipped, and nothing leaves before that is known; not with
    // local.
    LossScaler::Config loss_scale = {};
    // How many times as long as it takes a batch shall take; at least 1.
    double slowdown = 1;
    // As in ClientOptions. The last evaluation pulls fp32 in any case.
    std::vector<CodecRun> push_runs = {};
    codec::Encoding pull_encoding = codec::Encoding::kFp32;
    SameHost same_host = SameHost::kSharedMemory;
    std::shared_ptr<const rpc::Protection> protection = nullptr;
    // As in ClientOptions.
    std::vector<uint32_t> exchange_cores = {};
    Timeouts timeouts;
    // How long the job waits for a server that died.
    absl::Duration server_return = absl::ZeroDuration();
    // How long the results of the run wait for room on a full disk, with the weights in memory.
    absl::Duration room_max = absl::ZeroDuration();
    // Lives without a single step, one after the other, before it gives up.
    int fruitless_lives_max = 3;
  };
  // How many parts Parts::parameter_memory is to have. A model lets go of its own memory when it computes on other
  // weights, as it does with several steps in flight, and in evaluations of the average.
  static size_t ParameterMemories(const Options& options) {
    return options.window > 1 || options.averaged ? options.window : 0;
  }
  using Connect =
      std::function<absl::StatusOr<std::unique_ptr<Client>>(const ClientOptions& options, const ShardMap& map)>;
  // As absl::Mutex::AwaitWithTimeout().
  using Wait = std::function<bool(absl::Mutex& mutex, const absl::Condition& until, absl::Duration timeout)>;
  static bool WaitOnClock(absl::Mutex& mutex, const absl::Condition& until, absl::Duration timeout);
  struct Parts {
    const TimeSource& time;
    SchedulerLink& link;
    LocalGroup& group;
    const Dataset& train;
    Prefetcher& prefetcher;  // over `train`
    Evaluator& evaluator;
    TrainerMetrics& metrics;
    // Where steps write what they push, in turns: one for each step in flight. Empty: the model's own.
    std::vector<absl::Span<float>> push_memory = {};
    // Where the weights after them are written, in turns: as many again. Empty, where ParameterMemories() are none: the
    // model's own.
    std::vector<absl::Span<float>> parameter_memory = {};
    // Where the push memory lies, if servers of this host may read it.
    std::shared_ptr<shm::Segment> push_segment = nullptr;
    Connect connect = Client::Create;
    // Lets the time pass for which this worker is slower than it is; tests have another.
    Wait wait = WaitOnClock;
    // Writes what the job begins with, where this worker is to say it. Null: as the model drew it.
    std::function<absl::Status(absl::Span<float> parameters)> begin_with = nullptr;
    // What computations take of their device, which a slow worker stretches. Null: `time`.
    const TimeSource* device_time = nullptr;
    // Of what it and its clients do. May be null.
    Trace* trace = nullptr;
    // Is told what the worker does. May be null.
    power::EnergySampler* energy = nullptr;
  };

  Trainer(const Options& options, const Parts& parts);
  ~Trainer();

  // Works until the job is over or Stop(), and leaves in good order.
  //   OK        nothing more to do, or stopped in good order
  //   kInternal  a loss or a gradient is not finite: the step is named, and was not pushed
  //   others    the last word of the scheduler, a server, LibTorch or the file system
  absl::Status Run();

  // Ends Run() soon, with `status`: a step that waits for servers is given up, one that computes is not pushed.
  void Stop(const absl::Status& status, const std::string& reason);

 private:
  struct Stopped {
    absl::Status status;
    std::string reason;
  };

  // One life, up to the end of the work. kFailedPrecondition: join again.
  absl::Status Live();
  absl::Status Enter(const Membership& life);
  absl::Status WorkUntilDone();
  absl::Status TrainRange(const RangeWork& range);
  // What of a range is trained already, and is left, in samples.
  struct RangeProgress {
    uint64_t done = 0;
    uint64_t size = 0;
  };
  // Returns its samples.
  absl::StatusOr<uint64_t> TrainStep(const RangeWork& range, const RangeProgress& progress);
  // Fills model().push() from the next batches, of which the range has `samples_left`.
  absl::StatusOr<StepResult> Compute(uint64_t samples_left);
  // A round of local training.
  absl::StatusOr<StepResult> ComputeRound(uint64_t samples_left);
  // The images that the range is trained on, in their order; with local training they may be other ones, and more.
  std::vector<uint32_t> ImagesOf(const RangeWork& range) const;
  uint32_t BatchSizeOf(const RangeWork& range) const {
    return range.batch_size > 0 ? range.batch_size : options_.batch_size;
  }
  // The same as Compute() from one batch. `early`: what is complete may leave while backward goes on.
  absl::StatusOr<StepResult> ComputeBatch(bool early);
  // What a step awaits of the one before it, while it computes.
  class LayerWait;
  // Whether the weights after a step may come while the next one computes.
  static bool MayOverlapPulls(const Options& options, const LocalGroup& group);
  // Waits until the step before is over, and opens the next one.
  absl::Status OpenNext();
  // When a computation began.
  struct Beginning {
    absl::Time time;
    absl::Time device_time;
  };
  Beginning BeginComputing() const { return {parts_.time.Now(), DeviceTime()}; }
  absl::Time DeviceTime() const {
    return parts_.device_time != nullptr ? parts_.device_time->Now() : parts_.time.Now();
  }
  // Waits until it has taken as long as it is to take.
  absl::Status Dawdle(const Beginning& begin) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until at most so many steps are in flight, and lets the model compute on the weights after the last of them.
  absl::Status FinishSteps(size_t left);
  // Where the weights after the next step go, which are not those that are computed on.
  absl::Span<float> NextParameters();
  absl::Status CheckFinite(const StepResult& result, double norm, const RangeWork& range) const;
  // Whether a step that is not finite is left out, since the loss was scaled up too far.
  bool Skips(const absl::Status& finite);
  absl::Status Evaluate(const EvaluationWork& work);
  // Weights and figures of the run. Where the disk is full, waits for room.
  //   kResourceExhausted  there was none for so long
  absl::Status WriteResults(Model& model, EvaluationResult& result);
  // What is evaluated, into the model's parameters or other memory. Beside this life's client, which stays as it is.
  absl::Status PullAsReader(absl::Span<float> parameters);
  // The averaged weights, in averaged_.
  absl::StatusOr<absl::Span<float>> PullAveraged();
  // Where the servers keep an average, a model's teacher begins as it.
  absl::Status BeginTeacher();
  // The model computes on the averaged weights from now on. Returns what it computed on before.
  absl::StatusOr<absl::Span<float>> UseAveraged();
  void Standby();
  void EnterPhase(power::Phase phase);

  absl::StatusOr<std::unique_ptr<Client>> MakeClient(bool reader);
  // What the group's device encodes of this life's pushes.
  DevicePlan PlanOnDevice(const ClientOptions& options);
  absl::Status OpenClient();
  // Tells it the newest map; returns the one before.
  std::unique_ptr<Client> Replace(std::unique_ptr<Client> client) ABSL_LOCKS_EXCLUDED(mutex_);
  void CloseClient(const std::string& reason);
  // Runs a call of the client's that Stop() and being expelled can cut short.
  template <typename Call>
  auto Await(Call call) -> decltype(call());
  absl::Status BeginWait() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndWait() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckStopped() ABSL_LOCKS_EXCLUDED(mutex_);
  // Not OK once this life or the job is over.
  absl::Status CheckInterrupted() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status InterruptStatus() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool Interrupted() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_ || expelled_; }
  // Why the scheduler has ended this life, if it has.
  absl::Status TakeExpulsion() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLifeEnd(const absl::Status& status, const std::string& reason);
  void OnMap(const ShardMap& map) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Duration silence_max() const;

  const Options options_;
  const Parts parts_;
  // What the trainer's thread does, and its exchange with servers.
  const TraceRow trace_, exchange_trace_;
  const bool overlap_pulls_;
  // The trainer's thread.
  Membership life_;
  ShardMap map_;
  uint64_t steps_ = 0;                  // over all lives
  absl::Duration data_wait_;            // for batches, of the step that is being computed
  bool arriving_ = false;               // the weights after the step in flight are read as they come
  absl::Duration layer_wait_;           // for layers of them
  std::unique_ptr<Batch> abandoned_;    // of the step in which the group was given up: a device that hangs may read it
  absl::Duration overlap_wait_;         // for the step before, of the step that is being computed
  std::deque<StepFacts> begun_;         // of the steps in flight, oldest first
  size_t parameters_used_ = 0;          // which of the parameter memory the model computes on
  std::optional<StepMemory> averaged_;  // of evaluations
  PushMean push_mean_;
  LossScaler scaler_;
  LocalRound round_;
  std::shared_ptr<OptimizerState> local_state_;  // of this life; shared, as LocalRound has it
  std::vector<uint32_t> order_;
  std::optional<uint32_t> order_epoch_;
  double samples_per_second_ = 0;
  std::string leave_reason_ = "no more work";

  absl::Mutex mutex_;
  // Replaced by the trainer's thread only, which therefore reads it without the lock.
  std::unique_ptr<Client> client_;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;                // in a call of client_
  std::optional<ShardMap> newest_map_ ABSL_GUARDED_BY(mutex_);  // that the scheduler has told of
  std::optional<std::string> expelled_ ABSL_GUARDED_BY(mutex_);
  std::optional<Stopped> stopped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::worker
