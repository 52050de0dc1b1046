// The status of the job as everybody sees it who looks on: what the controller knows, with the past, alerts and the
// disk.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "scheduler/status_history.h"
#include "status.pb.h"

namespace slackline::scheduler {

// Thread-safety: safe.
// Ownership:     owns the history; borrows the source until Close().
class StatusBoard {
 public:
  struct Options {
    std::string run_folder;
    // Where checkpoints are; empty: nowhere.
    std::string checkpoints = {};
    // JSON that is not older is given again: many who look on cost no more than one. Of a job so large that it takes
    // long to make, for twenty times as long as that took.
    absl::Duration fresh = absl::Milliseconds(200);
  };
  using Source = std::function<wire::JobStatus()>;

  explicit StatusBoard(Options options) : options_(std::move(options)) {}

  // From now on there is something to show. `view` is called with the board's lock held.
  void Open(Source view);
  // `view` is not called any more once this returns; whoever waits goes on.
  void Close();

  StatusHistory& history() { return history_; }

  // Before Open() and after Close() an empty one.
  wire::JobStatus Status();
  // The same as JSON; null before Open() and after Close().
  std::shared_ptr<const std::string> Json();
  // Returns after `time`, or at once when it is closed.
  void Wait(absl::Duration time) const;

 private:
  wire::JobStatus Compose() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddCheckpoints(wire::JobCheckpoints& checkpoints) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Kept {
    uint64_t number = 0;
    uint64_t bytes = 0;
    absl::Time made;
  };

  const Options options_;
  const SteadyTime time_;
  StatusHistory history_;
  mutable absl::Mutex mutex_;
  Source view_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const std::string> json_ ABSL_GUARDED_BY(mutex_);
  absl::Time json_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // Checkpoints on disk, as of the last one that was made.
  std::vector<Kept> kept_ ABSL_GUARDED_BY(mutex_);
  uint64_t kept_as_of_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace slackline::scheduler
