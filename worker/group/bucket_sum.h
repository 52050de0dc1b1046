// The sum of what the devices of a group push, made bucket by bucket while they compute the rest.
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
#include "worker/group/buckets.h"
#include "worker/trace.h"

namespace slackline::worker {

// What one device adds, and how much of it.
struct Addend {
  absl::Span<float> push;
  float weight = 1;
  // Where what its thread sums is recorded.
  TraceRow trace = {};
};

// A bucket is summed when all devices have it, by the thread of a device, into the first device's push. Each element is
// summed in the order of the devices, whoever comes when: the same addends give the same bits.
//
// Thread-safety: each device has a thread, which calls Arrive(), Help() and Leave(); another one the rest.
// Ownership:     borrows the addends from Begin() until all devices have left.
class BucketSum {
 public:
  BucketSum(uint64_t elements, const BucketSizes& sizes) : buckets_(elements, sizes) {}

  // A new sum; addends.front() becomes it. Requires: all devices have left the one before.
  void Begin(std::vector<Addend> addends) ABSL_LOCKS_EXCLUDED(mutex_);

  // push[from, elements) of the device is what it adds. `from` falls from call to call. Sums what is complete.
  void Arrive(size_t device, uint64_t from) ABSL_LOCKS_EXCLUDED(mutex_);
  // The device has nothing else to do: it sums, too, until there is nothing left, or a device failed.
  void Help(size_t device) ABSL_LOCKS_EXCLUDED(mutex_);
  // The device is through. When it failed there is no sum, and nobody waits for it any more.
  void Leave(size_t device, bool failed) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nobody waits any more.
  void Abort() ABSL_LOCKS_EXCLUDED(mutex_);

  struct Progress {
    uint64_t from = 0;  // the sum is complete in [from, elements)
    bool over = false;  // all have left
  };
  // Waits until the sum is complete further down than `from`, or all devices have left.
  //   kDeadlineExceeded  no device came any further for `silence_max`; names each that is awaited, and its bucket
  absl::StatusOr<Progress> Await(uint64_t from, absl::Duration silence_max) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Device {
    Addend addend;
    size_t complete = 0;  // buckets
    bool left = false;
  };

  // Of those that all devices have, the next that nobody sums yet.
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
  std::vector<bool> summed_ ABSL_GUARDED_BY(mutex_);  // by bucket
  size_t first_unsummed_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t complete_ ABSL_GUARDED_BY(mutex_) = 0;  // buckets that all devices have
  size_t claimed_ ABSL_GUARDED_BY(mutex_) = 0;   // buckets that are summed, or being summed
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t known_from_ ABSL_GUARDED_BY(mutex_) = 0;  // to whoever waits
  uint64_t events_ ABSL_GUARDED_BY(mutex_) = 0;      // how often a device came further
};

}  // namespace slackline::worker
