// Signals as values to wait for, instead of handlers that interrupt.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace slackline::cli {

// Holds back SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD of this thread and of all threads that it starts afterwards.
// Signals that were ignored stay ignored, except SIGCHLD. One an object per process; make it before the first thread.
//
// Thread-safety: none.
class SignalQueue {
 public:
  SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue();

  // The next signal within `timeout`. SIGCHLD says that some child has ended (several may share one signal).
  std::optional<int> Wait(absl::Duration timeout);

 private:
  int fd_;
};

// True for the signals that ask the program to end.
bool IsStop(int signal);

}  // namespace slackline::cli
