// ArrivalGate: lets device threads use parameters as they arrive. The stepping thread waits for the parameters piece by
// piece, and releases the devices after each piece.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "worker/model/model.h"

namespace slackline::worker {

// ArrivalGate opens for a growing range of parameters.
//
// Thread-safety: safe; one thread steps, others wait.
class ArrivalGate {
 public:
  struct Pieces {
    uint64_t elements = 0;  // number of all elements
    uint64_t each = 0;      // elements per piece, at least 1
  };

  // Closes the gate. Call this before the waiting threads begin.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  // Opens the gate after each piece has arrived. Opens it after the last piece when all pieces are present and
  // `before_last` has returned OK. When Pass() returns, the gate is open, even after a failure.
  //   others  the error of the arrival, or of `before_last`
  absl::Status Pass(Arrival& arrival, const Pieces& pieces, absl::FunctionRef<absl::Status()> before_last)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until parameters()[0, end) have arrived, or will not arrive. Has no deadline: the thread in Pass() has one.
  void Await(uint64_t end) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Open(uint64_t to) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  uint64_t open_to_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
};

}  // namespace slackline::worker
