// One device's end of NCCL. Nothing here blocks for longer than it was given.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/device.h"
#include "worker/cuda/collectives.h"
#include "worker/cuda/runtime.h"

namespace slackline::worker::gpu {

// Device `number` of `count`; number 0 has what is sent to all, and gets the sums.
struct Rank {
  int number = 0;
  int count = 1;
};

// Thread-safety: one thread; Abort() and Broken() from any. NCCL is never called by two at a time: an abort takes away
// what the other would ask.
class Communicator {
 public:
  // What all ends of one group are made with.
  static absl::StatusOr<ncclUniqueId> NewId();
  // All ends must be made at the same time, each in a thread whose current device is its own.
  //   kDeadlineExceeded  others did not come by then
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const Device& device, const Rank& rank,
                                                              const ncclUniqueId& id, absl::Duration timeout);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Puts it on `stream`. `floats`: the device's memory.
  absl::Status Broadcast(float* floats, size_t elements, cudaStream_t stream);
  // What Sum() multiplies this device's values with from now on. Each device has its own.
  absl::Status SetWeight(float weight);
  // The first device's values become the weighted sum.
  absl::Status Sum(float* floats, size_t elements, cudaStream_t stream);

  // What has gone wrong behind the calls.
  absl::Status Broken() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends what is under way, here and so at the others' ends, once theirs are aborted, too. Later calls fail.
  void Abort() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Communicator(const Device& device, absl::Duration timeout) : device_(device), timeout_(timeout) {}

  // Calls NCCL, and waits until what it began is through, or has failed.
  absl::Status Call(const char* doing, const std::function<ncclResult_t()>& call) ABSL_LOCKS_EXCLUDED(mutex_);
  ncclResult_t State() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status GivenUp(const char* doing) const;

  const Device device_;
  const absl::Duration timeout_;
  mutable absl::Mutex mutex_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the one thread.
  ncclRedOp_t weighted_ = ncclSum;
  bool has_weight_ = false;
};

}  // namespace slackline::worker::gpu
