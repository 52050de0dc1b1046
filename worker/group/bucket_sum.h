// BucketSum: sums the gradients of a group's devices bucket by bucket, while the devices compute the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/base/trace.h"
#include "worker/group/buckets.h"

namespace slackline::worker {

// The gradient of a device, and its weight in the sum.
struct Addend {
  absl::Span<float> push;
  float weight = 1;
  // Trace row that records the sums of the device's thread.
  TraceRow trace = {};
};

// BucketSum sums a bucket once all devices have it. The thread of any device adds the bucket of all devices into the
// first device's push. Each element is summed in the order of the devices, whatever the order of arrival: equal addends
// give equal bits.
//
// Thread-safety: each device has a thread, which calls Arrive(), Help() and Leave(); another thread calls the rest.
// Ownership:     borrows the addends from Begin() until all devices have left.
class BucketSum {
 public:
  BucketSum(uint64_t elements, const BucketSizes& sizes) : buckets_(elements, sizes) {}

  // Begins a new sum, which overwrites addends.front(). Requires: all devices have left the previous sum.
  void Begin(std::vector<Addend> addends) ABSL_LOCKS_EXCLUDED(mutex_);

  // Announces that push[from, elements) of the device is final, and sums the complete buckets. `from` falls from call
  // to call.
  void Arrive(size_t device, uint64_t from) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sums buckets until none is left, or until a device fails. For a device that has nothing else to do.
  void Help(size_t device) ABSL_LOCKS_EXCLUDED(mutex_);
  // Reports that the device has finished. If it failed, there is no sum, and waiting threads return.
  void Leave(size_t device, bool failed) ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes all threads in Help() return. Await() still waits for all devices to leave.
  void Abort() ABSL_LOCKS_EXCLUDED(mutex_);

  struct Progress {
    uint64_t from = 0;  // the sum is complete in [from, elements)
    bool over = false;  // true if all devices have left
  };
  // Blocks until the sum is complete further down than `from`, or all devices have left.
  //   kDeadlineExceeded  no device made progress for `silence_max`; names each awaited device, and its bucket
  absl::StatusOr<Progress> Await(uint64_t from, absl::Duration silence_max) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Device {
    Addend addend;
    size_t complete = 0;  // number of complete buckets
    bool left = false;
  };

  // True if a bucket that all devices have is not yet being summed.
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !stopped_ && claimed_ < complete_; }
  bool HelpIsOver() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return HasWork() || stopped_ || claimed_ == buckets_.count();
  }
  void SumWhatIsComplete(size_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Sum(size_t bucket, absl::Span<const Addend> addends) const;
  bool HasNews() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return SummedFrom() < known_from_ || Over(); }
  bool Over() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return left_ == devices_.size(); }
  uint64_t SummedFrom() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  std::string Awaited() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const Buckets buckets_;

  absl::Mutex mutex_;
  std::vector<Device> devices_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> summed_ ABSL_GUARDED_BY(mutex_);  // indexed by bucket
  size_t first_unsummed_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t complete_ ABSL_GUARDED_BY(mutex_) = 0;  // number of buckets that all devices have
  size_t claimed_ ABSL_GUARDED_BY(mutex_) = 0;   // number of buckets that are summed or being summed
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t known_from_ ABSL_GUARDED_BY(mutex_) = 0;  // the last `from` of Await()
  uint64_t events_ ABSL_GUARDED_BY(mutex_) = 0;      // number of times that a device made progress
};

}  // namespace slackline::worker
