// The worker's loop: joins, pulls, then trains on range after range of batches until there is no more work. Course
// (worker/life/course.h) decides what follows what.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "common/time/timeouts.h"
#include "images/dataset/dataset.h"
#include "images/dataset/prefetcher.h"
#include "worker/base/step_memory.h"
#include "worker/base/trace.h"
#include "worker/client/client.h"
#include "worker/evaluation/evaluator.h"
#include "worker/group/local_group.h"
#include "worker/life/course.h"
#include "worker/life/life.h"
#include "worker/life/trainer_metrics.h"
#include "worker/local_training/local_round.h"
#include "worker/scheduler_link/scheduler_link.h"
#include "worker/trainer/loss_scaler.h"
#include "worker/trainer/push_mean.h"

namespace slackline::worker {

// Thread-safety: Run() on one thread; Stop() from any.
// Ownership:     borrows all parts; they outlive it.
class Trainer {
 public:
  struct Options {
    // Seed of the order of the data.
    uint64_t seed = 1;
    // True if evaluations and the results of the run use the exponential average of the weights, which the servers
    // keep.
    bool averaged = false;
    // True if the weights that steps pull are predicted ones. Evaluations then pull the weights themselves.
    bool predicted = false;
    // True if each class occurs equally often in an epoch.
    bool balanced = false;
    // True if an epoch visits the files of prepared images one after the other.
    bool by_file = false;
    // Batch size for ranges that do not set one.
    uint32_t batch_size = 64;
    // Number of batches for each push.
    uint32_t accumulate = 1;
    // Local training. If it is on, each push is one round of local training. Not with accumulate or window above 1.
    LocalConfig local = {};
    uint32_t chunk_bytes = 1 << 20;
    // True if forward may begin while weights are arriving, if the model can do so: each layer waits for its own
    // weights. Only for plain steps: with a window of 1 and one batch for each push, without local training, loss
    // scaling and slowdown.
    bool pull_by_layers = false;
    // Number of steps in flight. With 2, a batch is computed while the push and pull of the previous step are on their
    // way.
    uint32_t window = 1;
    // Loss scaling. If it is on, a step whose gradient overflows is skipped, and nothing is sent before that is known.
    // Not with local training.
    LossScaler::Config loss_scale = {};
    // Factor by which the time of each batch is stretched; at least 1.
    double slowdown = 1;
    // See ClientOptions.
    std::vector<CodecRun> push_runs = {};
    // Encoding of this worker's pulls. A reader's pulls, such as for the final evaluation, are fp32 in any case.
    codec::Encoding pull_encoding = codec::Encoding::kFp32;
    SameHost same_host = SameHost::kSharedMemory;
    std::shared_ptr<const rpc::Protection> protection = nullptr;
    // Cores of the thread of the exchange with servers, see ClientOptions::cores.
    std::vector<uint32_t> exchange_cores = {};
    Timeouts timeouts;
    // Longest time that the job waits for the return of a server that crashed.
    absl::Duration server_return = absl::ZeroDuration();
    // Longest time that the results of the run wait for room on a full disk, with the weights in memory.
    absl::Duration room_max = absl::ZeroDuration();
  };
  // Returns the number of parts that Parts::parameter_memory must have. A model gives up its own memory if it computes
  // on other weights: with several steps in flight, and in evaluations of the average.
  static size_t ParameterMemories(const Options& options) {
    return options.window > 1 || options.averaged ? options.window : 0;
  }
  using Connect =
      std::function<absl::StatusOr<std::unique_ptr<Client>>(const ClientOptions& options, const ShardMap& map)>;
  static bool WaitOnClock(absl::Mutex& mutex, const absl::Condition& until, absl::Duration timeout);
  struct Parts {
    const TimeSource& time;
    SchedulerLink& link;
    LocalGroup& group;
    const images::Dataset& train;
    images::Prefetcher& prefetcher;  // reads from `train`
    Evaluator& evaluator;
    TrainerMetrics& metrics;
    // Memory into which steps write their pushes, in turns: one part for each step in flight. Empty: memory of the
    // model.
    std::vector<absl::Span<float>> push_memory = {};
    // Memory into which the weights after these steps are written, in turns: one part for each step in flight. Empty if
    // ParameterMemories() is 0: memory of the model.
    std::vector<absl::Span<float>> parameter_memory = {};
    // Segment that has the push memory, if servers of this host may read it.
    std::shared_ptr<shm::Segment> push_segment = nullptr;
    Connect connect = Client::Create;
    // Waits for the additional time of a worker with `slowdown`; tests pass another function.
    Life::Wait wait = WaitOnClock;
    // Writes the initial weights of the job, if this worker must send them. Null: the weights that the model drew.
    std::function<absl::Status(absl::Span<float> parameters)> begin_with = nullptr;
    // Clock of the time that computations take of their device, which `slowdown` stretches. Null: `time`.
    const TimeSource* device_time = nullptr;
    // Trace of what the trainer and its clients do. May be null.
    Trace* trace = nullptr;
    // Sampler that is told which phase the worker is in. May be null.
    power::EnergySampler* energy = nullptr;
  };

  Trainer(const Options& options, const Parts& parts);

  // Works until the job is over or Stop() is called, and leaves in good order.
  //   OK         nothing more to do, or stopped in good order
  //   kInternal  a loss, a gradient or a batch-norm statistic is not finite; names the step, of which nothing was
  //              applied
  //   others     last error of the scheduler, a server, LibTorch or the file system
  absl::Status Run();

  // Ends Run() soon, with `status`. A step that waits for servers is given up; a step that is being computed is not
  // pushed.
  void Stop(const absl::Status& status, const std::string& reason) { life_.Stop(status, reason); }

 private:
  // Perform the acts of the course, and report how they ended.
  void Perform(const JoinAct& act);
  void Perform(const EnterAct& act);
  void Perform(const AskAct& ask);
  void Perform(const RangeWork& range);
  void Perform(const EvaluationWork& evaluation);
  void Perform(const StandbyWork& standby);
  void Perform(const LeaveAct&) {}
  void Done(const absl::Status& status);
  absl::Status TrainRange(const RangeWork& range);
  // Samples of a range: number that is trained already, and number in all.
  struct RangeProgress {
    uint64_t done = 0;
    uint64_t size = 0;
  };
  // Trains one step and returns its number of samples.
  absl::StatusOr<uint64_t> TrainStep(const RangeWork& range, const RangeProgress& progress);
  // Fills model().push() from the next batches. The range has `samples_left` samples left.
  absl::StatusOr<StepResult> Compute(uint64_t samples_left);
  // Computes a round of local training.
  absl::StatusOr<StepResult> ComputeRound(uint64_t samples_left);
  // Returns the images that are trained on for this range, in their order. With local training they may be other
  // images, and more.
  std::vector<uint32_t> ImagesOf(const RangeWork& range) const;
  uint32_t BatchSizeOf(const RangeWork& range) const {
    return range.batch_size > 0 ? range.batch_size : options_.batch_size;
  }
  // Fills model().push() from one batch. `early`: parts that are complete may be sent while backward continues.
  absl::StatusOr<StepResult> ComputeBatch(bool early);
  // Waits for the weights of the previous step while the next step already computes, layer by layer.
  class LayerWait;
  // Returns true if the weights after a step may arrive while the next step computes.
  static bool MayOverlapPulls(const Options& options, const LocalGroup& group);
  // Waits until the previous step is over, and opens the next one.
  absl::Status OpenNext();
  // Times at which a computation began.
  struct Beginning {
    absl::Time time;
    absl::Time device_time;
  };
  Beginning BeginComputing() const { return {parts_.time.Now(), DeviceTime()}; }
  absl::Time DeviceTime() const {
    return parts_.device_time != nullptr ? parts_.device_time->Now() : parts_.time.Now();
  }
  // Waits until the computation has taken `slowdown` times as long as its device needed.
  absl::Status Dawdle(const Beginning& begin);
  // Waits until at most `left` steps are in flight, and makes the model compute on the weights after the last finished
  // step.
  absl::Status FinishSteps(size_t left);
  // Returns the memory for the weights after the next step: the next part of `parameter_memory`, or the parameters of
  // the model if there is none. With a window above 1, no step computes on that memory while the weights arrive.
  absl::Span<float> NextParameters();
  absl::Status CheckFinite(const StepResult& result, double norm, const RangeWork& range) const;
  // Returns true if a step that is not finite is skipped, because the loss was scaled too much; then lowers the scale.
  bool Skips(const absl::Status& finite);
  absl::Status Evaluate(const EvaluationWork& work);
  // Writes the weights and figures of the run. If the disk is full, waits for room.
  //   kResourceExhausted  there was no room for the whole of room_max
  absl::Status WriteResults(Model& model, EvaluationResult& result);
  // Pulls the weights to evaluate into `parameters`, in the model or elsewhere. Uses a client of its own; the client of
  // this life stays as it is.
  absl::Status PullAsReader(absl::Span<float> parameters);
  // Pulls the averaged weights into averaged_ and returns them.
  absl::StatusOr<absl::Span<float>> PullAveraged();
  // Sets the model's teacher, if it has one, to the averaged weights, if the servers keep an average.
  absl::Status BeginTeacher();
  // Makes the model compute on the averaged weights from now on. Returns the weights that it computed on before.
  absl::StatusOr<absl::Span<float>> UseAveraged();
  // Tells the sampler of energy which phase the act is in.
  void EnterPhase(const Act& act);
  void EnterPhase(power::Phase phase);

  absl::StatusOr<std::unique_ptr<Client>> MakeClient(bool reader);
  // Plans which parts of this life's pushes the device of the group encodes.
  DevicePlan PlanOnDevice(const ClientOptions& options);
  absl::Status OpenClient();
  // Ends the steps in flight, and the client's life, if there is a reason.
  void CloseClient(const std::optional<std::string>& reason);

  const Options options_;
  const Parts parts_;
  // Rows of the trace: the trainer's thread, and its exchange with servers.
  const TraceRow trace_, exchange_trace_;
  const bool overlap_pulls_;
  Life life_;
  Course course_;
  // Members of the trainer's thread.
  uint64_t steps_ = 0;         // finished steps of all lives
  absl::Duration data_wait_;   // wait for batches, in the step being computed
  bool arriving_ = false;      // the weights after the step in flight are read as they arrive
  absl::Duration layer_wait_;  // wait for single layers of these weights
  std::unique_ptr<images::Batch>
      abandoned_;                // batch of the step in which the group was given up; a hanging device may read it
  absl::Duration overlap_wait_;  // wait for the previous step, in the step being computed
  std::deque<StepFacts> begun_;  // steps in flight, oldest first
  size_t parameters_used_ = 0;   // index in parameter_memory of the weights in use
  std::optional<StepMemory> averaged_;  // averaged weights, for evaluations and the teacher
  PushMean push_mean_;
  LossScaler scaler_;
  LocalRound round_;
  std::shared_ptr<OptimizerState> local_state_;  // state of this life; shared, see LocalRound
  std::vector<uint32_t> order_;
  std::optional<uint32_t> order_epoch_;
  double samples_per_second_ = 0;
};

}  // namespace slackline::worker
