// Waits for room on a full disk: of workers that write the results, and of the last checkpoint. One limit counts for
// all of them. It runs from the first wait, and starts anew after the last waiting worker waits no more. Pure.
//
// Thread-safety: none.
#pragma once

#include <optional>
#include <set>

#include "absl/time/time.h"
#include "scheduler/work/data_ranges.h"

namespace slackline::scheduler {

class RoomWait {
 public:
  explicit RoomWait(absl::Duration max) : max_(max) {}

  absl::Duration max() const { return max_; }
  bool begun() const { return since_.has_value(); }
  bool Over(absl::Time now) const { return begun() && Waited(now) > max_; }
  // Returns the time since the first wait began. Requires: begun().
  absl::Duration Waited(absl::Time now) const { return now - *since_; }
  // Returns a worker that has waited too long, if there is one.
  std::optional<Holder> TooLong(absl::Time now) const {
    if (workers_.empty() || !Over(now)) return std::nullopt;
    return *workers_.begin();
  }

  // Does nothing if a wait has begun.
  void Begin(absl::Time now) {
    if (!begun()) since_ = now;
  }
  // Notes whether a worker waits. Returns true if that has changed.
  bool Hear(const Holder& worker, bool waits, absl::Time now) {
    if (waits == workers_.contains(worker)) return false;
    if (!waits) {
      workers_.erase(worker);
      if (workers_.empty()) since_.reset();
      return true;
    }
    // The last worker that waited has died: with a living one the job would have failed.
    if (workers_.empty() && Over(now)) since_.reset();
    Begin(now);
    workers_.insert(worker);
    return true;
  }
  void WorkerGone(const Holder& worker) { workers_.erase(worker); }

 private:
  const absl::Duration max_;
  std::optional<absl::Time> since_;
  std::set<Holder> workers_;
};

}  // namespace slackline::scheduler
