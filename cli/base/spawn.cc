#include "cli/base/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/shm/descriptor.h"

namespace slackline::cli {
namespace {

using shm::Descriptor;

// The child between fork and exec: only calls that are safe there. Never returns; a failure goes to `report` as errno.
[[noreturn]] void BecomeProgram(char* const* command, char* const* environment, const char* input_file, int log,
                                int report, const std::function<bool()>& prepare) {
  const bool prepared = prepare();
  if (prepared) {
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    // Whoever started us may have ignored some. Children get them from us, and SIGPIPE as every program expects it.
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGPIPE}) ::signal(signal, SIG_DFL);
    const int input = ::open(input_file, O_RDONLY);
    ::dup2(input, STDIN_FILENO);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    environment[0] == nullptr ? ::execv(command[0], command) : ::execve(command[0], command, environment);
  }
  const int error = errno;
  const ssize_t ignored = ::write(report, &error, sizeof(error));
  static_cast<void>(ignored);
  ::_exit(127);
}

// Returns the texts as exec(3) takes them.
std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::Status SystemError(const std::string& what, int error) {
  const std::string text = absl::StrCat(what, ": ", ::strerror(error));
  return error == ENOENT || error == ENOTDIR ? absl::NotFoundError(text) : absl::UnavailableError(text);
}

absl::StatusOr<pid_t> Spawn(std::vector<std::string> command, int log, const std::function<bool()>& prepare,
                            std::vector<std::string> environment, const std::string& input) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return SystemError("cannot make a pipe", errno);
  const Descriptor read_end(pipe[0]);
  Descriptor write_end(pipe[1]);
  const std::vector<char*> words = Pointers(command), variables = Pointers(environment);

  const pid_t pid = ::fork();
  if (pid < 0) return SystemError("cannot start a process", errno);
  if (pid == 0) BecomeProgram(words.data(), variables.data(), input.c_str(), log, write_end.get(), prepare);

  // Nothing comes through the pipe when exec works: it closes the other end.
  write_end = Descriptor();
  int error = 0;
  ssize_t size;
  while ((size = ::read(read_end.get(), &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  if (size != static_cast<ssize_t>(sizeof(error))) return pid;
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return SystemError(absl::StrCat("cannot start ", command.front()), error);
}

}  // namespace slackline::cli
