// Reasons to end the process, and how it ends: the first reason wins.
#pragma once

#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace slackline::ps {

// Collects reasons to end the process; the first one is the result.
//
// Thread-safety: safe.
class Ending {
 public:
  struct Result {
    int exit_code = 0;
    std::string reason;
    // True if a signal asks this process to end; the job may go on.
    bool by_signal = false;
  };

  void End(Result result) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    result.by_signal ? ++signals_ : ++orders_;
    if (ended_) return;
    ended_ = true;
    result_ = std::move(result);
  }

  // Blocks until the first End(), for as long as the process has something to do.
  Result Wait() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&ended_));
    return result_;
  }

  // Blocks, after a signal, until there is another reason to end as well, and returns true. Returns false if no other
  // reason comes within `timeout`, or if a second signal comes.
  bool AwaitAnother(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(this, &Ending::HasAnother), timeout);
    return orders_ > 0;
  }

 private:
  bool HasAnother() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return orders_ > 0 || signals_ > 1; }

  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  Result result_ ABSL_GUARDED_BY(mutex_);
  int signals_ ABSL_GUARDED_BY(mutex_) = 0;
  int orders_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Turns SIGINT and SIGTERM into an ending with exit code 0; SIGUSR1 and SIGUSR2 are ignored.
//
// Threads:   one, born in the constructor, joined in the destructor. Construct a SignalWatch before any other thread:
//            threads inherit that these signals are blocked.
// Ownership: borrows `ending`.
class SignalWatch {
 public:
  // `supervised`: ignores SIGTERM, which is meant for the process that started this one; that process sends SIGINT.
  SignalWatch(Ending& ending, bool supervised);
  ~SignalWatch();

 private:
  std::thread thread_;
};

}  // namespace slackline::ps
