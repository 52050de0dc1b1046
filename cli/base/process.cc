#include "cli/base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/spawn.h"
#include "common/shm/descriptor.h"
#include "common/text/json_text.h"
#include "common/text/utf8.h"
#include "common/time/clock.h"

namespace slackline::cli {
namespace {

using shm::Descriptor;

constexpr size_t kLastWordsBytesMax = 4096;

// Returns a line of JSON (output.log_format) as text: "TIME PROCESS LEVEL: MESSAGE". Returns other lines unchanged.
std::string PlainLogLine(const std::string& line) {
  if (line.empty() || line.front() != '{') return line;
  const nlohmann::json fields = ParseJson(line);
  const auto text = [&](const char* name) {
    const auto found = fields.find(name);
    return found != fields.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (!fields.is_object() || text("time").empty() || text("level").empty()) return line;
  return absl::StrCat(text("time"), " ", text("process"), " ", text("level"), ": ", text("message"));
}

}  // namespace

ProcessEnd ProcessEnd::FromWait(int status) {
  if (WIFSIGNALED(status)) return {true, WTERMSIG(status)};
  return {false, WEXITSTATUS(status)};
}

std::string ProcessEnd::Describe() const {
  if (!by_signal) return absl::StrCat("exit code ", code);
  return absl::StrCat("killed by signal ", code, " (", ::strsignal(code), ")");
}

absl::StatusOr<Process> Process::Start(ProcessSpec spec) {
  const Descriptor log(::open(spec.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) return SystemError(absl::StrCat("cannot write ", spec.log.string()), errno);
  const off_t log_begin = ::lseek(log.get(), 0, SEEK_END);
  const pid_t parent = ::getpid();
  const absl::StatusOr<pid_t> pid = Spawn(
      spec.command, log.get(),
      [parent] {
        ::setpgid(0, 0);
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        // The parent may have died before prctl; then nobody would kill us.
        if (::getppid() != parent) ::_exit(1);
        return true;
      },
      spec.environment, spec.input);
  if (!pid.ok()) return pid.status();
  return Process(std::move(spec), std::max<int64_t>(0, log_begin), *pid);
}

Process::Process(Process&& other) noexcept
    : spec_(std::move(other.spec_)),
      log_begin_(other.log_begin_),
      pid_(std::exchange(other.pid_, 0)),
      end_(other.end_) {}

Process& Process::operator=(Process&& other) noexcept {
  if (this != &other) {
    KillAndReap();
    spec_ = std::move(other.spec_);
    log_begin_ = other.log_begin_;
    pid_ = std::exchange(other.pid_, 0);
    end_ = other.end_;
  }
  return *this;
}

Process::~Process() { KillAndReap(); }

void Process::KillAndReap() {
  if (pid_ == 0 || Poll()) return;
  ::kill(-pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  end_ = ProcessEnd::FromWait(status);
}

std::optional<ProcessEnd> Process::Poll() {
  if (end_ || pid_ == 0) return end_;
  siginfo_t ended = {};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != pid_) {
    return end_;
  }
  // A script's children are in its process group, and end with it. The process is not reaped yet, so no other group can
  // have its number.
  ::kill(-pid_, SIGKILL);
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_) end_ = ProcessEnd::FromWait(status);
  return end_;
}

std::optional<ProcessEnd> Process::WaitFor(absl::Duration timeout) {
  if (Poll()) return end_;
  const Descriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  pollfd wait{pidfd.get(), POLLIN, 0};
  const absl::Time deadline = SteadyTime().Now() + timeout;
  while (!Poll()) {
    const absl::Duration left = deadline - SteadyTime().Now();
    if (left <= absl::ZeroDuration()) break;
    ::poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
  }
  return end_;
}

void Process::Signal(int signal) {
  // Poll() first: the number of a reaped process may belong to somebody else.
  if (pid_ != 0 && !Poll()) ::kill(pid_, signal);
}

std::string LastWords(const std::filesystem::path& log, int64_t begin, size_t lines_max) {
  std::ifstream in(log, std::ios::binary);
  in.seekg(0, std::ios::end);
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(begin, size - static_cast<std::streamoff>(kLastWordsBytesMax)));
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    lines.push_back(line);
    if (lines.size() > lines_max) lines.pop_front();
  }
  // A program may write any bytes, and what is quoted of them goes into messages and files.
  for (std::string& line : lines) line = ValidText(PlainLogLine(line));
  return absl::StrJoin(lines, "\n");
}

}  // namespace slackline::cli
