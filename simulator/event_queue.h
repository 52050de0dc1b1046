// Virtual time: what happens, in the order in which it happens.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"

namespace slackline::simulator {

// Thread-safety: none.
// Invariant:     time never goes backwards; events of one moment happen in the order in which they were planned, so
// that
//                equal plans give equal histories.
class EventQueue : public TimeSource {
 public:
  using Event = std::function<void()>;

  // Begins at the Unix epoch.
  absl::Time Now() const override { return now_; }
  double seconds() const { return absl::ToDoubleSeconds(now_ - absl::UnixEpoch()); }

  // What lies in the past happens now.
  void At(absl::Time when, Event event) { planned_.push({std::max(when, now_), ++planned_ever_, std::move(event)}); }
  void After(absl::Duration delay, Event event) { At(now_ + delay, std::move(event)); }

  // Lets the next event happen. Returns false where nothing is planned.
  bool Next() {
    if (planned_.empty()) return false;
    // The queue only shows constant ones; this one leaves it in the next line.
    Planned next = std::move(const_cast<Planned&>(planned_.top()));
    planned_.pop();
    now_ = next.when;
    next.event();
    ++happened_;
    return true;
  }

  // Events that have happened.
  uint64_t happened() const { return happened_; }

 private:
  struct Planned {
    absl::Time when;
    uint64_t number = 0;
    Event event;

    bool operator<(const Planned& other) const {  // the queue shows the largest: the soonest
      return when != other.when ? when > other.when : number > other.number;
    }
  };

  absl::Time now_ = absl::UnixEpoch();
  std::priority_queue<Planned> planned_;
  uint64_t planned_ever_ = 0;
  uint64_t happened_ = 0;
};

}  // namespace slackline::simulator
