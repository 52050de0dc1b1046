// Status of the job for everybody who looks on: what the controller knows, with the past, alerts and the disk.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "scheduler/status/status_history.h"
#include "status.pb.h"

namespace slackline::scheduler {

// Thread-safety: safe.
// Ownership:     owns the history; borrows the source until Close().
class StatusBoard {
 public:
  struct Options {
    std::string run_folder;
    // Folder of the checkpoints; empty: none.
    std::string checkpoints = {};
    // Age up to which JSON is given out again: many readers then cost no more than one. JSON of a job so large that it
    // takes long to make is given out again for twenty times as long as that took.
    absl::Duration fresh = absl::Milliseconds(200);
  };
  using Source = std::function<wire::JobStatus()>;

  explicit StatusBoard(Options options) : options_(std::move(options)) {}

  // Begins to show the job. `view` is called with the board's lock held.
  void Open(Source view);
  // Stops showing the job. `view` is not called any more once this returns; callers of Wait() go on.
  void Close();

  StatusHistory& history() { return history_; }

  // Returns the status; an empty one before Open() and after Close().
  wire::JobStatus Status();
  // Returns the status as JSON; null before Open() and after Close().
  std::shared_ptr<const std::string> Json();
  // Returns after `time`, or at once if the board is closed.
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
  // Checkpoints on disk, as of the last one that was made, and its number.
  std::vector<Kept> kept_ ABSL_GUARDED_BY(mutex_);
  uint64_t kept_as_of_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace slackline::scheduler
