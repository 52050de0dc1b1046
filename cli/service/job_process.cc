#include "cli/service/job_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "cli/base/process_line.h"
#include "cli/base/spawn.h"
#include "common/shm/descriptor.h"
#include "common/time/clock.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;
using shm::Descriptor;

// Time for a process that holds the lock to write its id.
constexpr absl::Duration kIdMax = absl::Seconds(1);
constexpr absl::Duration kIdPoll = absl::Milliseconds(10);

// Time for the processes that a process has started, once it has ended.
constexpr absl::Duration kLeftMax = absl::Seconds(10);

// Prepares the child before its program begins, with calls that are safe after fork(). Returns false if a later host
// could not find the process.
bool BecomeJob(int lock, const char* folder) {
  ::setsid();
  // The copy has no O_CLOEXEC, so the lock stays as long as the program and its children.
  if (::dup(lock) < 0) return false;
  // The child writes this, since the host may die right after fork(). The line of /proc has the process id and the time
  // of its start, by which a later process with this id is told apart.
  char line[1024];
  const int stat = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const ssize_t size = stat < 0 ? -1 : ::read(stat, line, sizeof(line));
  return size > 0 && ::pwrite(lock, line, static_cast<size_t>(size), 0) == size && ::chdir(folder) == 0;
}

// Returns whether some process holds the lock on the file. A file that cannot be opened counts as locked, except for
// one that does not exist.
bool IsLocked(const fs::path& file) {
  const Descriptor lock(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  if (!lock.valid()) return errno != ENOENT;
  return ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
}

// Returns whether the process exists and has not ended. Nobody may reap it.
bool IsAlive(pid_t pid, const std::string& start) {
  const std::optional<ProcessLine> now = ReadProcessLine(absl::StrCat("/proc/", pid, "/stat"));
  return now && now->start == start && now->state != 'Z' && now->state != 'X';
}

}  // namespace

absl::StatusOr<JobProcess> JobProcess::Start(const Spec& spec) {
  const Descriptor log(::open(spec.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) return SystemError(absl::StrCat("cannot write ", spec.log.string()), errno);
  const off_t log_begin = ::lseek(log.get(), 0, SEEK_END);
  const Descriptor lock(::open(spec.file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.valid()) return SystemError(absl::StrCat("cannot write ", spec.file.string()), errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return SystemError(absl::StrCat("cannot lock ", spec.file.string()), errno);
    return absl::AlreadyExistsError(absl::StrCat("a process holds the lock on ", spec.file.string()));
  }
  if (::ftruncate(lock.get(), 0) != 0) return SystemError(absl::StrCat("cannot write ", spec.file.string()), errno);
  const std::string folder = spec.working_folder;
  const absl::StatusOr<pid_t> pid = Spawn(
      spec.command, log.get(), [&lock, &folder] { return BecomeJob(lock.get(), folder.c_str()); }, spec.environment);
  if (!pid.ok()) return absl::Status(pid.status().code(), absl::StrCat(pid.status().message(), " in ", folder));
  JobProcess started(spec.file, *pid, /*ours=*/true);
  started.log_ = spec.log;
  started.log_begin_ = log_begin;
  return started;
}

std::optional<JobProcess> JobProcess::Find(const fs::path& file) {
  const absl::Time deadline = SteadyTime().Now() + kIdMax;
  while (IsLocked(file)) {
    if (const std::optional<ProcessLine> process = ReadProcessLine(file)) {
      JobProcess found(file, process->pid, /*ours=*/false);
      found.start_ = process->start;
      return found.Gone() ? std::nullopt : std::optional<JobProcess>(std::move(found));
    }
    if (SteadyTime().Now() > deadline) break;
    absl::Notification().WaitForNotificationWithTimeout(kIdPoll);
  }
  return std::nullopt;
}

bool JobProcess::IsHeld(const fs::path& file) { return IsLocked(file); }

bool JobProcess::Gone() {
  if (gone_) return true;
  if (!ended_ && ours_) {
    int status = 0;
    const pid_t reaped = ::waitpid(pid_, &status, WNOHANG);
    if (reaped == 0 || (reaped < 0 && errno == EINTR)) return false;
    if (reaped == pid_) end_ = ProcessEnd::FromWait(status);
  } else if (!ended_ && IsAlive(pid_, start_) && IsLocked(file_)) {
    return false;
  }
  if (!ended_) ended_ = SteadyTime().Now();
  // The kernel is about to kill its children. What a script has left behind for good must not hold up the job.
  if (IsLocked(file_) && SteadyTime().Now() < *ended_ + kLeftMax) return false;
  std::error_code error;
  if (IsLocked(file_)) fs::remove(file_, error);
  gone_ = true;
  return true;
}

void JobProcess::Signal(int signal) {
  // Gone() first: the number of a process that has ended may belong to somebody else.
  if (!Gone() && !ended_) ::kill(pid_, signal);
}

}  // namespace slackline::cli
