#include "ps/ending.h"

#include <csignal>

#include "absl/strings/str_cat.h"

namespace slackline::ps {
namespace {

// Ends the watching thread itself.
constexpr int kStopWatching = SIGUSR1;

sigset_t Watched() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, kStopWatching}) sigaddset(&set, signal);
  return set;
}

}  // namespace

SignalWatch::SignalWatch(Ending& ending) {
  const sigset_t set = Watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([&ending, set] {
    int signal = 0;
    while (sigwait(&set, &signal) == 0 && signal != kStopWatching) {
      ending.End({0, absl::StrCat("told to stop by ", signal == SIGINT ? "SIGINT" : "SIGTERM")});
    }
  });
}

SignalWatch::~SignalWatch() {
  pthread_kill(thread_.native_handle(), kStopWatching);
  thread_.join();
}

}  // namespace slackline::ps
