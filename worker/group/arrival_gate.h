// Parameters that are on their way to devices with threads of their own: the thread that steps waits for them, piece by
// piece, and lets the devices go on.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Thread-safety: safe; one thread steps, others wait.
class ArrivalGate {
 public:
  struct Pieces {
    uint64_t elements = 0;  // of all
    uint64_t each = 0;      // at least 1
  };

  // Before the threads that wait begin.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  // Opens the gate behind each piece, and behind the last one when all are there and `before_last` has returned OK.
  // When it returns the gate is open, whatever came.
  //   others  of the arrival, or of `before_last`
  absl::Status Pass(Arrival& arrival, const Pieces& pieces, absl::FunctionRef<absl::Status()> before_last)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Until parameters()[0, end) are there, or will not come. No deadline here: whoever passes them on has one.
  void Await(uint64_t end) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Open(uint64_t to) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  uint64_t open_to_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
};

}  // namespace slackline::worker
