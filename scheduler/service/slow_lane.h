// Answers calls that may take long, such as those that look at files, one after the other on its own thread: heartbeats
// do not wait for them.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include <grpcpp/grpcpp.h>
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace slackline::scheduler {

// Thread-safety: safe.
// Threads:       one, from construction to destruction. Outlives the server whose calls it answers.
class SlowLane {
 public:
  // `calls_max`: largest number of calls that wait for their work, or whose reply has not left yet.
  explicit SlowLane(int calls_max) : calls_max_(calls_max), thread_([this] { Run(); }) {}
  ~SlowLane() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the reactor of a call, which ends with the status that `work` returns. If too many are in progress, the
  // call ends with RESOURCE_EXHAUSTED at once.
  grpc::ServerUnaryReactor* Serve(std::function<grpc::Status()> work) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Call;

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !waiting_.empty(); }

  const int calls_max_;
  absl::Mutex mutex_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace slackline::scheduler
