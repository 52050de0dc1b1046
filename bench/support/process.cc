#include "bench/support/process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"

namespace slackline::bench {
namespace {

constexpr uint32_t kTextBytesMax = 1 << 16;

// Returns false when nothing can be read until `deadline`.
bool AwaitReadable(int descriptor, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
    const bool forever = left == absl::InfiniteDuration();
    const int ready = poll(&wanted, 1, forever ? -1 : static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

bool Channel::Send(const void* bytes, size_t size) const {
  const auto* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t sent = send(descriptor_, from, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    from += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool Channel::Receive(void* bytes, size_t size, absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  auto* to = static_cast<char*>(bytes);
  while (size > 0) {
    if (!AwaitReadable(descriptor_, deadline)) return false;
    const ssize_t received = recv(descriptor_, to, size, 0);
    if (received <= 0) return false;
    to += received;
    size -= static_cast<size_t>(received);
  }
  return true;
}

bool Channel::SendText(const std::string& text) const {
  const auto size = static_cast<uint32_t>(text.size());
  return Send(size) && Send(text.data(), size);
}

bool Channel::ReceiveText(std::string* text, absl::Duration timeout) const {
  uint32_t size = 0;
  if (!Receive(&size, timeout) || size > kTextBytesMax) return false;
  text->resize(size);
  return Receive(text->data(), size, timeout);
}

Child::Child(std::string name, const std::function<void(const Channel&)>& body) : name_(std::move(name)) {
  int ends[2];
  SLACKLINE_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const pid_t parent = getpid();
  pid_ = fork();
  SLACKLINE_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // it was gone before it could take us along
    close(ends[0]);
    body(Channel(ends[1]));
    _exit(0);
  }
  close(ends[1]);
  channel_ = Channel(ends[0]);
}

Child::~Child() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

double CpuSeconds(pid_t pid) {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

uint64_t PeakResidentBytes(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  std::string word;
  while (status >> word) {
    uint64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

void ExitOnError(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, std::string(status.message()).c_str());
  std::fflush(stdout);
  _exit(1);
}

}  // namespace slackline::bench
