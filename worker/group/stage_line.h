// Which stage of a pipeline may do what next, and how far all of them are.
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

// What a stage does in a step: one forward, one backward (1F1B; Narayanan et al. 2019, with a flush at the end of each
// step). Stage s begins with as many forwards as there are stages behind it, so that it never keeps the activations of
// more than stages - s micro-batches.
std::vector<StageTask> TasksOf(size_t stage, const LineShape& shape);

// Thread-safety: safe; each stage has a thread, another one calls Begin(), Stop() and AwaitEnds().
class StageLine {
 public:
  // A new step. Requires: all stages have left the one before.
  void Begin(const LineShape& shape) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until what the task needs is there. False: it will not come.
  bool AwaitTurn(size_t stage, const StageTask& task) ABSL_LOCKS_EXCLUDED(mutex_);
  void Done(size_t stage, const StageTask& task) ABSL_LOCKS_EXCLUDED(mutex_);
  // The stage is through: its gradients begin at `from`.
  void Leave(size_t stage, uint64_t from) ABSL_LOCKS_EXCLUDED(mutex_);
  // It failed, or gave up because another one did: nobody waits for it any more.
  void LeaveEarly(size_t stage) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nobody waits any more.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  struct Ends {
    size_t stages = 0;  // the last so many are through, and so are their gradients
    uint64_t from = 0;
    bool over = false;  // all have left
  };
  // Waits until more than the last `stages` are through, or all have left.
  //   kDeadlineExceeded  no stage came any further for `silence_max`; names the one that is awaited, and its
  //   micro-batch
  absl::StatusOr<Ends> AwaitEnds(size_t stages, absl::Duration silence_max) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Stage {
    size_t forwards = 0;  // done
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
  // Of any stage. One for all: they are few, and a micro-batch takes milliseconds.
  absl::CondVar changed_;
  LineShape shape_ ABSL_GUARDED_BY(mutex_);
  std::vector<Stage> stages_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t events_ ABSL_GUARDED_BY(mutex_) = 0;  // how often a stage came further
};

}  // namespace slackline::worker
