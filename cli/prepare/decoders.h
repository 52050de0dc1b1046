// Threads that go through a list of images together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace slackline::cli::prepare {

// Runs tasks on a fixed number of threads.
//
// Thread-safety: one thread at a time calls Run().
// Threads:       `jobs`, born in the constructor, joined in the destructor.
class Decoders {
 public:
  explicit Decoders(uint32_t jobs);
  ~Decoders();
  Decoders(const Decoders&) = delete;
  Decoders& operator=(const Decoders&) = delete;

  // Calls `task(i)` once for each i below `count`, in any thread and in any order, and returns when all are done.
  // Meanwhile calls `look(done)` in the caller's thread, a few times a second.
  void Run(size_t count, const std::function<void(size_t)>& task, const std::function<void(size_t)>& look)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Work();
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stop_ || next_ < count_; }
  bool AllDone() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return done_ == count_; }

  absl::Mutex mutex_;
  const std::function<void(size_t)>* task_ ABSL_GUARDED_BY(mutex_) = nullptr;
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace slackline::cli::prepare
