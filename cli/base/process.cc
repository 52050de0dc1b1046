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
#include "common/text/json_text.h"
#include "common/text/utf8.h"
#include "common/time/clock.h"

namespace slackline::cli {
namespace {

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

// Closes on destruction.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { Close(); }

  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// The child between fork and exec: only calls that are safe there. Never returns; a failure goes to `report` as
// errno.
[[noreturn]] void BecomeProgram(char* const* command, int log, int report, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before prctl; then nobody would kill us.
  if (::getppid() != parent) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // Whoever started us may have ignored some. Children get them from us, and SIGPIPE as every program expects it.
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGPIPE}) ::signal(signal, SIG_DFL);
  const int input = ::open("/dev/null", O_RDONLY);
  ::dup2(input, STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execv(command[0], command);
  const int error = errno;
  const ssize_t ignored = ::write(report, &error, sizeof(error));
  static_cast<void>(ignored);
  ::_exit(127);
}

absl::Status SystemError(const std::string& what, int error) {
  const std::string text = absl::StrCat(what, ": ", ::strerror(error));
  return error == ENOENT ? absl::NotFoundError(text) : absl::UnavailableError(text);
}

ProcessEnd FromWaitStatus(int status) {
  if (WIFSIGNALED(status)) return {true, WTERMSIG(status)};
  return {false, WEXITSTATUS(status)};
}

}  // namespace

std::string ProcessEnd::Describe() const {
  if (!by_signal) return absl::StrCat("exit code ", code);
  return absl::StrCat("killed by signal ", code, " (", ::strsignal(code), ")");
}

absl::StatusOr<Process> Process::Start(ProcessSpec spec) {
  const FileDescriptor log(::open(spec.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log.get() < 0) return SystemError(absl::StrCat("cannot write ", spec.log.string()), errno);
  const off_t log_begin = ::lseek(log.get(), 0, SEEK_END);
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return SystemError("cannot make a pipe", errno);
  const FileDescriptor read_end(pipe[0]);
  FileDescriptor write_end(pipe[1]);
  std::vector<char*> command;
  for (std::string& argument : spec.command) command.push_back(argument.data());
  command.push_back(nullptr);

  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return SystemError("cannot start a process", errno);
  if (pid == 0) BecomeProgram(command.data(), log.get(), write_end.get(), parent);

  // Nothing comes through the pipe when exec works: it closes the other end.
  write_end.Close();
  int error = 0;
  ssize_t size;
  while ((size = ::read(read_end.get(), &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  Process process(std::move(spec), std::max<int64_t>(0, log_begin), pid);
  if (size == static_cast<ssize_t>(sizeof(error))) {
    process.KillAndReap();
    return SystemError(absl::StrCat("cannot start ", process.spec_.command.front()), error);
  }
  return process;
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
  end_ = FromWaitStatus(status);
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
  if (::waitpid(pid_, &status, WNOHANG) == pid_) end_ = FromWaitStatus(status);
  return end_;
}

std::optional<ProcessEnd> Process::WaitFor(absl::Duration timeout) {
  if (Poll()) return end_;
  const FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
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

std::string Process::LastWords(size_t lines_max) const {
  std::ifstream in(spec_.log, std::ios::binary);
  in.seekg(0, std::ios::end);
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(log_begin_, size - static_cast<std::streamoff>(kLastWordsBytesMax)));
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
