// GroupSilence: decides how long to wait for the threads of a group while none of them makes progress.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace slackline::worker {

// GroupSilence counts looks, not time. If the whole process was stopped, that counts as one look, and not as the
// silence of a thread.
//
// Thread-safety: none.
class GroupSilence {
 public:
  // Begins a silence. `events`: number of progress events so far.
  GroupSilence(absl::Duration longest, uint64_t events) : longest_(longest), events_(events) {}

  // Time to wait before the next look.
  absl::Duration look() const { return longest_ / kLooks; }
  // Returns, after a wait without news, whether no thread made progress for too long.
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
