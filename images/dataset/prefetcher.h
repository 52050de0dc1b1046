// Prefetcher: prepares batches in its own threads, ahead of the trainer.
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
#include "images/dataset/dataset.h"

namespace slackline::images {

// Prefetcher loads the batches of one range of images at a time.
//
// Thread-safety: safe for one consumer.
// Threads:       `threads`, started in the constructor, joined in the destructor. Each thread makes whole batches.
//                Batches come out in order, and are the same for any number of threads.
// Limits:        at most `capacity` batches, or one per thread if that is more, are ready or in progress. Counting
//                batches for an earlier range and the one in use, there are at most that many plus one per thread.
class Prefetcher {
 public:
  struct Normalisation {
    double mean = 0;
    double deviation = 1;
  };

  // Borrows `dataset`, which must outlive this object. `seed` determines how `augment` varies the images.
  Prefetcher(const Dataset& dataset, Normalisation normalisation, uint32_t capacity, const Augment& augment = {},
             uint64_t seed = 0, uint32_t threads = 1);
  ~Prefetcher();

  // Sets the memory that holds the images of batches; it must outlive all batches. Null, the default: ordinary memory.
  // Call this before the first Start(), or with the same memory.
  void UseMemory(BatchMemory* memory);
  // Starts on these images, cut into batches of `batch_size` (the last may be smaller), and drops the rest of an
  // earlier range. `epoch`, from 0, varies the augmentation.
  void Start(std::vector<uint32_t> indices, uint32_t batch_size, uint32_t epoch = 0);
  // Returns the next batch, or nullptr at the end of the range. Return the batch with Recycle(), so that its memory is
  // reused.
  //   kDeadlineExceeded  no batch became ready in time: within `timeout`, or 20 times that while the process computes
  //   as Dataset::Load() an image could not be read: the prefetcher cannot be used any more
  absl::StatusOr<std::unique_ptr<Batch>> Next(absl::Duration timeout);
  void Recycle(std::unique_ptr<Batch> batch);

 private:
  void Run();
  // Takes the images of the next batch off the range. The caller loads them without the lock.
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
  uint64_t range_ ABSL_GUARDED_BY(mutex_) = 0;  // number of Start() calls
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;  // batches of the range that threads have taken
  uint64_t given_ ABSL_GUARDED_BY(mutex_) = 0;  // batches of the range that Next() has returned
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  // Finished batches, by their number in the range.
  std::map<uint64_t, std::unique_ptr<Batch>> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Batch>> spare_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace slackline::images
