// Past of a run for the status page: curves that are thinned as the run gets long, and the last events with their
// times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "scheduler/base/report.h"
#include "scheduler/status/status_limits.h"
#include "status.pb.h"

namespace slackline::scheduler {

// A series that keeps every value at first, then every second one, every fourth, and so on: at most kCurvePointsMax,
// and the newest one besides.
//
// Thread-safety: none.
template <typename Value>
class Thinned {
 public:
  void Add(const Value& value) {
    if (added_++ % stride_ == 0) kept_.push_back(value);
    newest_ = value;
    if (kept_.size() < kCurvePointsMax) return;
    for (size_t i = 0; 2 * i < kept_.size(); ++i) kept_[i] = kept_[2 * i];
    kept_.resize((kept_.size() + 1) / 2);
    stride_ *= 2;
  }
  // Returns the kept values, oldest first.
  std::vector<Value> values() const {
    std::vector<Value> values = kept_;
    if (newest_ && (added_ - 1) % stride_ != 0) values.push_back(*newest_);
    return values;
  }

 private:
  std::vector<Value> kept_;
  std::optional<Value> newest_;
  uint64_t added_ = 0;
  uint64_t stride_ = 1;
};

// Thread-safety: safe.
class StatusHistory {
 public:
  // Replaces the history by the files of a run folder, metrics.csv and events.log. Lines that make no sense are
  // skipped.
  void Load(const std::string& run_folder);
  void Add(const Report& report);
  void AddEvent(absl::string_view event, absl::Time wall_time);

  // Fills in the curve, the events, and for how long the slack has been at its bound.
  void Fill(wire::JobStatus& status) const;

 private:
  struct Point {
    double time_s = 0;
    double epoch = 0;
    // Figures below are NaN if unknown.
    double loss = 0;
    double accuracy = 0;
    double samples_per_second = 0;
    double staleness_mean = 0;
    double slack = 0;
    double live_workers = 0;
  };
  struct Evaluation {
    double time_s = 0;
    double accuracy = 0;
  };
  struct Event {
    absl::Time at;
    std::string text;
  };

  void LoadCurve(const std::string& file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoadEvents(const std::string& file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddEventLocked(absl::string_view event, absl::Time wall_time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  Thinned<Point> points_ ABSL_GUARDED_BY(mutex_);
  Thinned<Evaluation> evaluations_ ABSL_GUARDED_BY(mutex_);
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t event_count_ ABSL_GUARDED_BY(mutex_) = 0;
  // Time of training since which the slack is at its bound; absent while it is within the bound.
  std::optional<double> at_bound_since_s_ ABSL_GUARDED_BY(mutex_);
  double latest_s_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace slackline::scheduler
