// Virtual time: runs events in the order of their times.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>

#include "absl/time/time.h"
#include "common/time/clock.h"

namespace slackline::simulator {

// Thread-safety: none.
// Invariant:     time never goes backwards; events at the same time run in the order in which they were planned, so
//                that equal plans give equal histories.
class EventQueue : public TimeSource {
 public:
  using Event = std::function<void()>;

  // Returns the virtual time, which begins at the Unix epoch.
  absl::Time Now() const override { return now_; }
  double seconds() const { return absl::ToDoubleSeconds(now_ - absl::UnixEpoch()); }

  // Plans `event` for `when`. An event in the past runs at the current time.
  void At(absl::Time when, Event event) { planned_.push({std::max(when, now_), ++planned_ever_, std::move(event)}); }
  void After(absl::Duration delay, Event event) { At(now_ + delay, std::move(event)); }

  // Runs the next event. Returns false if nothing is planned.
  bool Next() {
    if (planned_.empty()) return false;
    // top() returns a const reference. The move is safe, since the next line removes the element.
    Planned next = std::move(const_cast<Planned&>(planned_.top()));
    planned_.pop();
    now_ = next.when;
    next.event();
    ++happened_;
    return true;
  }

  // Returns the number of events that have run.
  uint64_t happened() const { return happened_; }

 private:
  struct Planned {
    absl::Time when;
    uint64_t number = 0;
    Event event;

    bool operator<(const Planned& other) const {  // the queue's top is the largest: the soonest event
      return when != other.when ? when > other.when : number > other.number;
    }
  };

  absl::Time now_ = absl::UnixEpoch();
  std::priority_queue<Planned> planned_;
  uint64_t planned_ever_ = 0;
  uint64_t happened_ = 0;
};

}  // namespace slackline::simulator
