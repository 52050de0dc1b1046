#include "worker/stop_signals.h"

#include <signal.h>

#include <utility>

namespace slackline::worker {
namespace {

// SIGUSR1 ends the watch.
sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, signal);
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
        while (sigwait(&signals, &signal) == 0 && signal != SIGUSR1) {
          handler(signal == SIGTERM ? "SIGTERM" : "SIGINT");
        }
      }) {}

StopSignals::~StopSignals() {
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
}

}  // namespace slackline::worker
