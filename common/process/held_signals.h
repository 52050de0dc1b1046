// Signals that a program blocks, to receive them as values.
#pragma once

#include <signal.h>

#include <initializer_list>

namespace slackline {

// Returns those of `signals` that this process does not ignore. A user who starts a program with a signal ignored
// (nohup, a shell's background job) wants that signal to do nothing, but Linux queues a blocked signal even if it is
// ignored.
inline sigset_t NotIgnored(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN) ::sigaddset(&set, signal);
  }
  return set;
}

}  // namespace slackline
