// TaskThread: a thread that runs one task at a time for its owner.
#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace slackline::worker {

// TaskThread runs the tasks that its owner starts.
//
// Thread-safety: one caller.
// Threads:       one, started in the constructor, joined in the destructor, which waits for the task to end.
class TaskThread {
 public:
  TaskThread() : thread_(&TaskThread::Run, this) {}
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Runs `task` on the thread. Requires: the previous task has nothing left to do except return.
  void Start(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Idle() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !busy_; }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return busy_ || stop_; }

  absl::Mutex mutex_;
  std::function<void()> task_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace slackline::worker
