// Counts the pieces of the trainer's memory that gRPC still reads.
#pragma once

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace slackline::worker {

// Loans counts the pieces of memory that are lent to gRPC.
//
// Thread-safety: safe; gRPC returns pieces on any thread.
// Ownership:     shared with the callbacks that it returns, since a cancelled call may end after the client.
class Loans : public std::enable_shared_from_this<Loans> {
 public:
  // Lends one piece. The returned function gives it back and must be called once.
  std::function<void()> Lend() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    ++lent_;
    return [self = shared_from_this()] { self->GiveBack(); };
  }

  // Blocks until no piece is lent. Returns false after `timeout`.
  bool AwaitNone(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(this, &Loans::NoneOut), timeout);
  }

 private:
  bool NoneOut() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return lent_ == 0; }
  void GiveBack() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    --lent_;
  }

  absl::Mutex mutex_;
  int lent_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace slackline::worker
