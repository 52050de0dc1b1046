// Makes batches ready in threads of its own, ahead of the trainer.
#pragma once

#include <cstdint>
#include <map>
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
// Threads:       `threads`, born in the constructor, joined in the destructor. Each makes whole batches, which come out
// in
//                their order: they are the same for any number.
// Limits:        at most `capacity` batches, or one a thread, are ready or in the making. With those for a range that
//                is over, and one in use, there are at most so many and one a thread.
class Prefetcher {
 public:
  struct Normalisation {
    double mean = 0;
    double deviation = 1;
  };

  // Borrows `dataset`, which must outlive it. `seed` says how `augment` varies the images.
  Prefetcher(const Dataset& dataset, Normalisation normalisation, uint32_t capacity, const Augment& augment = {},
             uint64_t seed = 0, uint32_t threads = 1);
  ~Prefetcher();

  // Where images of batches are; it outlives all of them. Null, as without this: anywhere. Before the first Start(),
  // or the same.
  void UseMemory(BatchMemory* memory);
  // Starts on these images, cut into batches of `batch_size` (the last may be smaller); what was left of an
  // earlier range is forgotten. `epoch`, from 0, varies how they are augmented.
  void Start(std::vector<uint32_t> indices, uint32_t batch_size, uint32_t epoch = 0);
  // The next batch, or nullptr when the range is used up. Give it back with Recycle() so that its memory is used again.
  //   kDeadlineExceeded  none became ready in time: within `timeout`, or 20 times that while the process computes
  //   as Dataset::Load() an image could not be read: the prefetcher is of no more use
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
  const uint64_t capacity_;
  const Augment augment_;
  const uint64_t seed_;
  absl::Mutex mutex_;
  BatchMemory* memory_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<uint32_t> indices_ ABSL_GUARDED_BY(mutex_);
  uint32_t batch_size_ ABSL_GUARDED_BY(mutex_) = 1;
  uint32_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;     // first index not yet taken by a thread
  uint64_t range_ ABSL_GUARDED_BY(mutex_) = 0;  // counts Start()
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;  // batches of the range that a thread has taken
  uint64_t given_ ABSL_GUARDED_BY(mutex_) = 0;  // and those that Next() has handed out
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  // By their number in the range.
  std::map<uint64_t, std::unique_ptr<Batch>> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Batch>> spare_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace slackline::worker
