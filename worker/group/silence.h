// How long threads of a group may be waited for while none of them comes any further.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace slackline::worker {

// Counts looks, not time: when the whole process was stopped, that is one look, and no silence of a thread.
//
// Thread-safety: none.
class Silence {
 public:
  // `events`: how often somebody came further so far.
  Silence(absl::Duration longest, uint64_t events) : longest_(longest), events_(events) {}

  // How long to wait before the next look.
  absl::Duration look() const { return longest_ / kLooks; }
  // After a wait in vain: whether nobody came further for too long.
  bool IsTooLong(uint64_t events) {
    quiet_ = events == events_ ? quiet_ + 1 : 0;
    events_ = events;
    return quiet_ >= kLooks;
  }

 private:
  static constexpr int kLooks = 8;

  const absl::Duration longest_;
  uint64_t events_;
  int quiet_ = 0;
};

}  // namespace slackline::worker
