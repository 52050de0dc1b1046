// Why and how the process ends: the first reason wins.
#pragma once

#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace slackline::ps {

// Thread-safety: safe.
class Ending {
 public:
  struct Result {
    int exit_code = 0;
    std::string reason;
    // Somebody wants this process to go, while the job may go on.
    bool by_signal = false;
  };

  void End(Result result) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = true;
    result_ = std::move(result);
  }

  // Waits for the first End(), for as long as the process has something to do.
  Result Wait() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&ended_));
    return result_;
  }

 private:
  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  Result result_ ABSL_GUARDED_BY(mutex_);
};

// Turns SIGINT and SIGTERM into an ending with exit code 0; SIGUSR1 and SIGUSR2 are ignored.
//
// Threads:   one, born in the constructor, joined in the destructor. Construct it before any other thread: threads
//            inherit that these signals are blocked.
// Ownership: borrows `ending`.
class SignalWatch {
 public:
  explicit SignalWatch(Ending& ending);
  ~SignalWatch();

 private:
  std::thread thread_;
};

}  // namespace slackline::ps
