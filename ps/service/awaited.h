// Passes one value from a thread to another thread that waits for it.
#pragma once

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace slackline::ps {

// Value that one thread gives and another waits for.
//
// Thread-safety: safe.
template <typename T>
class Awaited {
 public:
  // Stores the value, if it is the first.
  void Give(T value) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!value_.has_value()) value_ = std::move(value);
  }

  // Blocks until there is a value, and returns it; nullopt if none comes within `timeout`.
  std::optional<T> Wait(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    auto given = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return value_.has_value(); };
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(absl::Condition(&given), timeout)) return std::nullopt;
    return value_;
  }

 private:
  absl::Mutex mutex_;
  std::optional<T> value_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::ps
