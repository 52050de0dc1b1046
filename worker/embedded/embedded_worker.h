// A worker inside somebody else's program, which computes the gradients itself: a training script in Python.
//
// The caller asks Next() what to do, fills push() from the samples of a range, and calls Step(). Standing by, joining
// again after an expulsion, and the pull for the last evaluation happen in here. LibTorch stays out.
#pragma once

#include <cstdint>
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
  double loss = 0;  // mean over the samples
  uint64_t correct = 0;
  absl::Duration compute;    // since the last step
  absl::Duration data_wait;  // of it
};

// What became of it.
struct EmbeddedStep {
  enum class Outcome {
    kTaken,     // every shard has answered, and the weights after it are there
    kRejoined,  // this worker had been put out, and is in again: the step is lost, and so is what was left of the range
    kEnded,     // the job is over: the step is lost
  };
  Outcome outcome = Outcome::kTaken;
  StepReport report;  // kTaken only
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

// Thread-safety: calls of one thread at a time; Interrupt() and view() from any.
// Ownership:     borrows all parts; they outlive it. parameters and push are its own from Step() until that returns,
// and
//                parameters while Next() runs.
// Deadlines:     as the trainer's: each wait names whom it waits for, and ends when a server or the scheduler has been
// silent
//                for too long.
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
    // Flat vectors, as long as all tensors: weights, of which the first worker's are the job's; and what is pushed.
    absl::Span<float> parameters;
    absl::Span<float> push;
    // Where push lies, if servers of this host may read it.
    std::shared_ptr<shm::Segment> push_segment = nullptr;
    Connect connect = Client::Create;
  };

  // Requires: parameters and push are as long as the tensors.
  EmbeddedWorker(Options options, const Parts& parts);
  ~EmbeddedWorker();

  // Joins where it has not yet, reports that the range it gave last is done, where `range_done`, and waits for
  // something to do. Before an evaluation, parameters are the newest; before the last one, in fp32.
  //   kFailedPrecondition  the range is not done: Step() was not called for all of its samples; or put out again and
  //   again others               the last word of the scheduler or a server
  absl::StatusOr<EmbeddedTask> Next(bool range_done) ABSL_LOCKS_EXCLUDED(mutex_);

  // push[from, end) stays as it is from now on, until Step() returns: it may leave already. `from` falls from call to
  // call. Between Next() and Step(). Cheap.
  //   as Step(), which says it again
  absl::Status Ready(uint64_t from) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether Ready() may have any effect: the exchange of a large model goes on between calls.
  bool leaves_early() const;

  // Pushes, and pulls as the consistency mode says.
  //   kInternal            a gradient or the loss is not finite; nothing was pushed
  //   kFailedPrecondition  put out again and again
  //   others               the last word of the scheduler or a server; this worker is of no use then, but to Leave()
  absl::StatusOr<EmbeddedStep> Step(const EmbeddedStepInfo& info) ABSL_LOCKS_EXCLUDED(mutex_);

  // What came of an evaluation; of 0 samples: nothing. With the last one, `files` are those that were written.
  absl::Status ReportEvaluation(const EvaluationResult& result) ABSL_LOCKS_EXCLUDED(mutex_);

  // The caller is at work on something that is no step, and moves on.
  void Alive() { parts_.link.progress().Alive(parts_.time.Now()); }
  // The caller is at work on something that may take any time, such as an evaluation: its silence is no stall.
  void SetBusyElsewhere(bool busy) { parts_.link.progress().SetWaiting(busy); }

  // Says goodbye to all. Nothing but view() may follow. Again changes nothing.
  void Leave(const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  // Makes the call in progress, and later ones but Leave(), return kCancelled.
  void Interrupt(const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  EmbeddedView view() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Stopped {
    absl::Status status;  // OK: the job is over
    std::string reason;
  };

  // After kFailedPrecondition; as often as lives may be fruitless.
  absl::Status JoinAgain(absl::Status why);
  absl::Status Enter();
  absl::StatusOr<EmbeddedTask> Work(RangeId done);
  absl::StatusOr<EmbeddedTask> TakeRange(const RangeWork& range);
  // What a call that failed with `status` means: the expulsion or the end that was behind it.
  absl::Status Cause(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Ended() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status PullNewest(bool final);
  absl::Status OpenStep();
  absl::Status CheckFinite(const EmbeddedStepInfo& info, double norm) const;
  void Record(const EmbeddedStepInfo& info, const StepReport& report, double norm, absl::Duration wait)
      ABSL_LOCKS_EXCLUDED(mutex_);

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
  std::optional<RangeWork> range_;  // being trained
  uint64_t range_done_ = 0;         // samples of it
  absl::Time range_begin_;
  double samples_per_second_ = 0;
  std::vector<uint32_t> order_;
  std::optional<uint32_t> order_epoch_;
  bool left_ = false;

  mutable absl::Mutex mutex_;
  // Replaced by the caller's thread only, which therefore reads it without the lock.
  std::unique_ptr<Client> client_;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // in a call of client_
  std::optional<ShardMap> newest_map_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> expelled_ ABSL_GUARDED_BY(mutex_);
  std::optional<Stopped> stopped_ ABSL_GUARDED_BY(mutex_);
  EmbeddedView view_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::worker
