// Signals as values to wait for, instead of handlers that interrupt.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace slackline::cli {

// Blocks SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD in this thread and in all threads that it starts afterwards.
// Signals that were ignored stay ignored, except SIGCHLD. A process makes one object, before its first thread.
//
// Thread-safety: none.
class SignalQueue {
 public:
  SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue();

  // Returns the next signal within `timeout`, or nullopt if none comes. SIGCHLD means that some child has ended
  // (several may share one signal).
  std::optional<int> Wait(absl::Duration timeout);

 private:
  int fd_;
};

// True for the signals that ask the program to end.
bool IsStop(int signal);

}  // namespace slackline::cli
