#include "ps/ending.h"

#include <csignal>

#include "absl/strings/str_cat.h"
#include "common/process/held_signals.h"

namespace slackline::ps {
namespace {

// Ends the watching thread itself: nobody else sends this one.
int StopWatching() { return SIGRTMIN; }

sigset_t Watched() {
  // A batch system may send SIGUSR1 or SIGUSR2 to all processes of a job; they are the scheduler's business.
  sigset_t set = NotIgnored({SIGINT, SIGTERM, SIGUSR1, SIGUSR2});
  sigaddset(&set, StopWatching());
  return set;
}

}  // namespace

SignalWatch::SignalWatch(Ending& ending, bool supervised) {
  const sigset_t set = Watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([&ending, set, supervised] {
    int signal = 0;
    while (sigwait(&set, &signal) == 0 && signal != StopWatching()) {
      if (signal == SIGUSR1 || signal == SIGUSR2 || (supervised && signal == SIGTERM)) continue;
      ending.End({0, absl::StrCat("told to stop by ", signal == SIGINT ? "SIGINT" : "SIGTERM"),
                  /*by_signal=*/true});
    }
  });
}

SignalWatch::~SignalWatch() {
  pthread_kill(thread_.native_handle(), StopWatching());
  thread_.join();
}

}  // namespace slackline::ps
