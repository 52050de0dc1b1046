#include "worker/stop_signals.h"

#include <signal.h>

#include <utility>

#include "common/process/held_signals.h"

namespace slackline::worker {
namespace {

// Ends the watch: nobody else sends this one.
int StopWatching() { return SIGRTMIN; }

// A batch system may send SIGUSR1 or SIGUSR2 to all processes of a job; they are the scheduler's business.
sigset_t Signals() {
  sigset_t signals = NotIgnored({SIGTERM, SIGINT, SIGUSR1, SIGUSR2});
  sigaddset(&signals, StopWatching());
  return signals;
}

}  // namespace

void HoldStopSignals() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

StopSignals::StopSignals(std::function<void(const std::string& name)> handler)
    : thread_([handler = std::move(handler)] {
        const sigset_t signals = Signals();
        int signal = 0;
        while (sigwait(&signals, &signal) == 0 && signal != StopWatching()) {
          if (signal == SIGUSR1 || signal == SIGUSR2) continue;
          handler(signal == SIGTERM ? "SIGTERM" : "SIGINT");
        }
      }) {}

StopSignals::~StopSignals() {
  pthread_kill(thread_.native_handle(), StopWatching());
  thread_.join();
}

}  // namespace slackline::worker
