// Communicator: one device's end of NCCL. No call blocks for longer than the timeout that it was given.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/process/device.h"
#include "worker/cuda/collectives.h"
#include "worker/cuda/runtime.h"

namespace slackline::worker::gpu {

// Device `number` of `count`. Device 0 sends the broadcasts and receives the sums.
struct Rank {
  int number = 0;
  int count = 1;
};

// Communicator runs the collective operations of a group for one device.
//
// Thread-safety: one thread; Abort() and Broken() from any thread. A mutex keeps two threads from calling NCCL at the
// same time, since an abort destroys what the other thread would query.
class Communicator {
 public:
  // Returns an id, with which all ends of one group are created.
  static absl::StatusOr<ncclUniqueId> NewId();
  // Joins the group. All ends must be created at the same time, each in a thread whose current device is its own.
  //   kDeadlineExceeded  other ends did not join within the timeout
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const Device& device, const Rank& rank,
                                                              const ncclUniqueId& id, absl::Duration timeout);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Enqueues a broadcast on `stream`. `floats`: the device's memory.
  absl::Status Broadcast(float* floats, size_t elements, cudaStream_t stream);
  // Sets the factor by which Sum() multiplies this device's values from now on. Each device has its own factor.
  absl::Status SetWeight(float weight);
  // Replaces the first device's values with the weighted sum over all devices.
  absl::Status Sum(float* floats, size_t elements, cudaStream_t stream);

  // Returns the error of an operation that failed after its call had returned.
  absl::Status Broken() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the operations in progress at this end, and at the other ends once they are aborted, too. Later calls fail.
  void Abort() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Communicator(const Device& device, absl::Duration timeout) : device_(device), timeout_(timeout) {}

  // Calls NCCL, and blocks until the operation has completed or failed.
  absl::Status Call(const char* doing, const std::function<ncclResult_t()>& call) ABSL_LOCKS_EXCLUDED(mutex_);
  ncclResult_t State() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status GivenUp(const char* doing) const;

  const Device device_;
  const absl::Duration timeout_;
  mutable absl::Mutex mutex_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  // Accessed only by the one thread that steps.
  ncclRedOp_t weighted_ = ncclSum;
  bool has_weight_ = false;
};

}  // namespace slackline::worker::gpu
