// Wakes a thread that waits for something to tell.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace slackline::ps {

// Thread-safety: safe; one thread waits.
class News {
 public:
  void Give() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    given_ = true;
  }

  // Until there are news, which are then no more, or `timeout` is over.
  void Await(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&given_), timeout);
    given_ = false;
  }

 private:
  absl::Mutex mutex_;
  bool given_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace slackline::ps
