// A flag that threads wait for by the machine's steady clock.
//
// absl::Mutex waits until a moment of the wall clock: if that clock is set back by an hour, a wait of a second takes an
// hour. Whatever others take for dead when it falls silent waits for a SteadyFlag instead.
#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace slackline {

// Thread-safety: safe.
class SteadyFlag {
 public:
  void Raise();
  // Waits until the flag is raised, for at most `timeout`. True if it is.
  bool Await(absl::Duration timeout);
  // The same, and lowers it.
  bool Take(absl::Duration timeout);

 private:
  // The standard's, since absl::CondVar waits by the wall clock, too.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool raised_ = false;
};

// Nothing wakes the caller before `time` is over.
inline void SteadyPause(absl::Duration time) { SteadyFlag().Await(time); }

}  // namespace slackline
