// A flag that threads wait for, with timeouts by the machine's steady clock.
//
// absl::Mutex waits until a time of the wall clock: if that clock is set back by an hour, a wait of a second takes an
// hour. A thread whose silence others take for a crash must wait for a SteadyFlag instead.
#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace slackline {

// Thread-safety: safe.
class SteadyFlag {
 public:
  void Raise();
  // Waits until the flag is raised, for at most `timeout`. Returns true if it is raised.
  bool Await(absl::Duration timeout);
  // Like Await(), and lowers the flag.
  bool Take(absl::Duration timeout);

 private:
  // A std::mutex, since absl::CondVar also waits by the wall clock.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool raised_ = false;
};

// Pauses the caller for `time`. Nothing wakes it earlier.
inline void SteadyPause(absl::Duration time) { SteadyFlag().Await(time); }

}  // namespace slackline
