// StageLine: decides which stage of a pipeline may do what next, and tracks the progress of all stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace slackline::worker {

struct StageTask {
  bool forward = true;
  size_t micro_batch = 0;

  friend bool operator==(const StageTask&, const StageTask&) = default;
};

struct LineShape {
  size_t stages = 1;
  size_t micro_batches = 1;
};

// Returns a stage's tasks in a step: one forward, one backward (1F1B; Narayanan et al. 2019, with a flush at the end of
// each step). Stage s begins with as many forwards as there are stages behind it, so that it never keeps the
// activations of more than stages - s micro-batches.
std::vector<StageTask> TasksOf(size_t stage, const LineShape& shape);

// StageLine synchronises the threads of the stages in a step.
//
// Thread-safety: safe; each stage has a thread, and another thread calls Begin(), Stop() and AwaitEnds().
class StageLine {
 public:
  // Begins a new step. Requires: all stages have left the previous one.
  void Begin(const LineShape& shape) ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until the task's input is present. Returns false if it will not arrive.
  bool AwaitTurn(size_t stage, const StageTask& task) ABSL_LOCKS_EXCLUDED(mutex_);
  void Done(size_t stage, const StageTask& task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Reports that the stage has finished. Its gradients begin at `from`.
  void Leave(size_t stage, uint64_t from) ABSL_LOCKS_EXCLUDED(mutex_);
  // Reports that the stage failed, or gave up because another stage failed. Waiting threads return.
  void LeaveEarly(size_t stage) ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes all waiting threads return.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  struct Ends {
    size_t stages = 0;  // number of last stages that have finished, so that their gradients are final
    uint64_t from = 0;
    bool over = false;  // true if all stages have left
  };
  // Blocks until more than the last `stages` stages have finished, or all have left.
  //   kDeadlineExceeded  no stage made progress for `silence_max`; names the awaited stage and its micro-batch
  absl::StatusOr<Ends> AwaitEnds(size_t stages, absl::Duration silence_max) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Stage {
    size_t forwards = 0;  // number of forwards that are done
    size_t backwards = 0;
    bool waits = false;
    bool left = false;
    bool through = false;
    uint64_t from = 0;
  };

  bool MayBegin(size_t stage, const StageTask& task) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  Ends Count() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  std::string Awaited() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  // Signals a change of any stage. One condition variable serves all stages: they are few, and a micro-batch takes
  // milliseconds.
  absl::CondVar changed_;
  LineShape shape_ ABSL_GUARDED_BY(mutex_);
  std::vector<Stage> stages_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t events_ ABSL_GUARDED_BY(mutex_) = 0;  // number of times that a stage made progress
};

}  // namespace slackline::worker
