// Virtual time: events, each of which happens at a time and to one life.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/time/clock.h"

namespace slackline::world {

// Life of one process; 0 is nobody's, and never ends.
using LifeId = uint64_t;

// Source of chance for one purpose, so that leaving out one kind of fault leaves the others as they were.
class Random {
 public:
  Random(uint64_t seed, uint64_t purpose) : bits_(seed * 0x9E3779B97F4A7C15u + purpose * 0xD1B54A32D192ED03u + 1) {}

  uint64_t Below(uint64_t end) { return bits_() % end; }
  uint64_t Between(uint64_t first, uint64_t last) { return first + Below(last - first + 1); }
  bool Chance(double share) { return static_cast<double>(bits_() >> 11) * 0x1.0p-53 < share; }
  absl::Duration Between(absl::Duration first, absl::Duration last) {
    return first + (last - first) * (static_cast<double>(bits_() >> 11) * 0x1.0p-53);
  }

 private:
  std::mt19937_64 bits_;
};

// Queue of events in virtual time. Events with the same time happen in the order in which they were added. Events of a
// life that is over do not happen. Events of a stopped life wait for GoOn(), as messages to a stopped process do.
//
// Thread-safety: none.
class Events {
 public:
  using What = std::function<void()>;

  absl::Time Now() const { return time_.Now(); }
  const TimeSource& time() const { return time_; }

  void After(absl::Duration wait, LifeId life, What what) { At(Now() + wait, life, std::move(what)); }
  void At(absl::Time at, LifeId life, What what) { queue_.push({at, ++order_, life, std::move(what)}); }

  LifeId Begin() {
    lives_[++last_life_] = {};
    return last_life_;
  }
  void End(LifeId life) { lives_.erase(life); }
  bool Alive(LifeId life) const { return life == 0 || lives_.contains(life); }
  bool Stopped(LifeId life) const {
    const auto found = lives_.find(life);
    return found != lives_.end() && found->second.stopped;
  }
  void Stop(LifeId life) { lives_.at(life).stopped = true; }
  void GoOn(LifeId life);

  // Runs the next event. Returns false if there is none.
  bool Next();
  uint64_t played() const { return played_; }

 private:
  struct Event {
    absl::Time at;
    uint64_t order = 0;
    LifeId life = 0;
    What what;
    friend bool operator<(const Event& a, const Event& b) {
      return std::pair(b.at, b.order) < std::pair(a.at, a.order);  // the earliest comes first
    }
  };
  struct Life {
    bool stopped = false;
    std::deque<What> waiting;
  };

  ManualTime time_;
  std::priority_queue<Event> queue_;
  std::map<LifeId, Life> lives_;
  uint64_t order_ = 0;
  LifeId last_life_ = 0;
  uint64_t played_ = 0;
};

}  // namespace slackline::world
