// Makes batches ready in a thread of its own, ahead of the trainer.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/data/dataset.h"

namespace slackline::worker {

// Thread-safety: safe for one consumer.
// Threads:       one, born in the constructor, joined in the destructor.
// Limits:        at most `capacity` batches are ready; one more may be in the making.
class Prefetcher {
 public:
  struct Normalisation {
    double mean = 0;
    double deviation = 1;
  };

  // Borrows `dataset`, which must outlive it. `seed` says how `augment` varies the images.
  Prefetcher(const Dataset& dataset, Normalisation normalisation, uint32_t capacity, const Augment& augment = {},
             uint64_t seed = 0);
  ~Prefetcher();

  // Starts on these images, cut into batches of `batch_size` (the last may be smaller); what was left of an
  // earlier range is forgotten. `epoch`, from 0, varies how they are augmented.
  void Start(std::vector<uint32_t> indices, uint32_t batch_size, uint32_t epoch = 0);
  // The next batch, or nullptr when the range is used up. Give it back with Recycle() so that its memory is used again.
  //   kDeadlineExceeded  none became ready in time
  absl::StatusOr<std::unique_ptr<Batch>> Next(absl::Duration timeout);
  void Recycle(std::unique_ptr<Batch> batch);

 private:
  void Run();
  // Takes the images of the next batch off the range; the caller loads them without the lock.
  std::vector<uint32_t> TakeIndices() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::unique_ptr<Batch> TakeSpare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool HasAnswer() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const Dataset& dataset_;
  const Normalisation normalisation_;
  const size_t capacity_;
  const Augment augment_;
  const uint64_t seed_;
  absl::Mutex mutex_;
  std::vector<uint32_t> indices_ ABSL_GUARDED_BY(mutex_);
  uint32_t batch_size_ ABSL_GUARDED_BY(mutex_) = 1;
  uint32_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;     // first index not yet taken by the thread
  uint64_t range_ ABSL_GUARDED_BY(mutex_) = 0;  // counts Start()
  bool loading_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::unique_ptr<Batch>> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Batch>> spare_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace slackline::worker
