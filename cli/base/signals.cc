#include "cli/base/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/process/held_signals.h"

namespace slackline::cli {

SignalQueue::SignalQueue() {
  // The system reaps the children of a process that ignores SIGCHLD: no end could be seen, and a number could be
  // reused.
  ::signal(SIGCHLD, SIG_DFL);
  const sigset_t held = NotIgnored({SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD});
  SLACKLINE_CHECK(::pthread_sigmask(SIG_BLOCK, &held, nullptr) == 0);
  fd_ = ::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
  SLACKLINE_CHECK(fd_ >= 0);
}

SignalQueue::~SignalQueue() { ::close(fd_); }

std::optional<int> SignalQueue::Wait(absl::Duration timeout) {
  pollfd wait{fd_, POLLIN, 0};
  ::poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(timeout))));
  signalfd_siginfo info;
  if (::read(fd_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

bool IsStop(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

}  // namespace slackline::cli
