// A value that one thread gives and another waits for.
#pragma once

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace slackline::ps {

// Thread-safety: safe.
template <typename T>
class Awaited {
 public:
  // Only the first value counts.
  void Give(T value) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!value_.has_value()) value_ = std::move(value);
  }

  // Nullopt when none has come within `timeout`.
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
