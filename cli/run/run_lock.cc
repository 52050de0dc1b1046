#include "cli/run/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/base/process_line.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

// How often somebody else may be quicker than we are.
constexpr int kTries = 10;

fs::path LockFile(const fs::path& run_folder) { return run_folder / "lock"; }
fs::path HeldFile(const fs::path& run_folder) { return run_folder / "lock.held"; }

std::string OnThisHost() {
  char host[HOST_NAME_MAX + 1] = "";
  ::gethostname(host, sizeof(host) - 1);
  return absl::StrCat(" on ", host);
}

std::string Self() { return absl::StrCat("process ", ::getpid(), OnThisHost()); }

std::string Holder(const fs::path& run_folder) {
  const std::string who = FirstLine(LockFile(run_folder));
  return who.empty() ? "another process" : who;
}

absl::Status StillRuns(const fs::path& run_folder, const std::string& who) {
  return absl::AlreadyExistsError(
      absl::StrCat("the run in ", run_folder.string(), " still runs: ", who, " supervises it"));
}

// What a process is known by: its machine since it was booted, its number and when it was started, and its job of
// SLURM.
struct Identity {
  std::string who;
  std::string boot;
  std::string pid;
  std::string started;
  std::string job;
  uint64_t attempt = 0;
};

// In ticks since the machine was booted; empty: there is no such process.
std::string StartOf(const std::string& pid) {
  const std::optional<ProcessLine> process = ReadProcessLine("/proc/" + pid + "/stat");
  return process ? process->start : "";
}

Identity OurIdentity(const RunLock::Attempt& attempt) {
  Identity self;
  self.who = Self();
  self.boot = FirstLine("/proc/sys/kernel/random/boot_id");
  self.pid = absl::StrCat(::getpid());
  self.started = StartOf(self.pid);
  self.job = attempt.job;
  self.attempt = attempt.number;
  return self;
}

// The first line is for people.
std::string ToText(const Identity& identity) {
  return absl::StrCat(identity.who, "\nboot ", identity.boot, "\npid ", identity.pid, "\nstarted ", identity.started,
                      "\njob ", identity.job, "\nattempt ", identity.attempt, "\n");
}

std::string ReadHeld(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

Identity ParseIdentity(const std::string& text) {
  Identity identity;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (identity.who.empty()) identity.who = std::string(line);
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    if (field.first == "boot") identity.boot = std::string(field.second);
    if (field.first == "pid") identity.pid = std::string(field.second);
    if (field.first == "started") identity.started = std::string(field.second);
    if (field.first == "job") identity.job = std::string(field.second);
    if (field.first == "attempt" && !absl::SimpleAtoi(field.second, &identity.attempt)) identity.attempt = 0;
  }
  return identity;
}

// Whether who made the file is certainly gone.
bool IsGone(const Identity& holder, const Identity& self) {
  if (!holder.job.empty() && holder.job == self.job && holder.attempt < self.attempt) return true;
  if (!absl::EndsWith(holder.who, OnThisHost()) || holder.boot.empty()) return false;
  return holder.boot != self.boot || StartOf(holder.pid) != holder.started;
}

// Whether it was made; an error where it could not be, for another reason than that it is there.
absl::StatusOr<bool> MakeHeld(const fs::path& file, const std::string& text) {
  // Whole before it has its name, which a link gives to one only, on any NFS.
  const fs::path draft = absl::StrCat(file.string(), ".", ::getpid());
  {
    std::ofstream out(draft);
    out << text << std::flush;
    if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", draft.string()));
  }
  const bool made = ::link(draft.c_str(), file.c_str()) == 0;
  const int error = errno;
  ::unlink(draft.c_str());
  if (made || error == EEXIST) return made;
  return absl::UnavailableError(absl::StrCat("cannot make ", file.string(), ": ", ::strerror(error)));
}

// Of two that take the same file away, one has it; who finds that he has another one's gives it back.
void TakeAway(const fs::path& file, const std::string& text) {
  const fs::path aside = absl::StrCat(file.string(), ".", ::getpid());
  if (::rename(file.c_str(), aside.c_str()) != 0) return;
  if (ReadHeld(aside) != text && ::link(aside.c_str(), file.c_str()) != 0) return;
  ::unlink(aside.c_str());
}

absl::Status Hold(const fs::path& run_folder, const Identity& self) {
  const fs::path file = HeldFile(run_folder);
  std::string who;
  for (int i = 0; i < kTries; ++i) {
    const absl::StatusOr<bool> made = MakeHeld(file, ToText(self));
    if (!made.ok()) return made.status();
    if (*made) return absl::OkStatus();
    const std::string text = ReadHeld(file);
    const Identity holder = ParseIdentity(text);
    who = holder.who.empty() ? "another process" : holder.who;
    if (!text.empty() && !IsGone(holder, self)) break;
    TakeAway(file, text);
  }
  return absl::AlreadyExistsError(absl::StrCat(StillRuns(run_folder, who).message(),
                                               "; the file system knows no locks: if that process is gone, remove ",
                                               file.string()));
}

}  // namespace

absl::StatusOr<RunLock> RunLock::Take(const fs::path& run_folder, const Attempt& attempt, LockCall call) {
  const fs::path file = LockFile(run_folder);
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("cannot write ", file.string(), ": ", ::strerror(errno)));
  RunLock lock(fd);
  if (call(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error == EWOULDBLOCK) return StillRuns(run_folder, Holder(run_folder));
    if (absl::Status held = Hold(run_folder, OurIdentity(attempt)); !held.ok()) return held;
    lock.held_ = HeldFile(run_folder);
    lock.by_file_ = absl::StrCat("the file system of ", run_folder.string(), " knows no locks (", ::strerror(error),
                                 "): ", lock.held_.string(), " stands for one");
  }
  const std::string who = absl::StrCat(Self(), "\n");
  // For people: a run does not depend on it.
  if (::ftruncate(fd, 0) == 0) {
    const ssize_t ignored = ::write(fd, who.data(), who.size());
    static_cast<void>(ignored);
  }
  return lock;
}

RunLock::RunLock(RunLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      by_file_(std::move(other.by_file_)),
      held_(std::exchange(other.held_, fs::path())) {}

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
  if (!held_.empty()) ::unlink(held_.c_str());
}

std::string WhoRuns(const fs::path& run_folder, RunLock::LockCall call) {
  const int fd = ::open(LockFile(run_folder).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const int error = call(fd, LOCK_SH | LOCK_NB) != 0 ? errno : 0;
  ::close(fd);
  if (error == 0) return "";
  if (error == EWOULDBLOCK) return Holder(run_folder);
  const Identity holder = ParseIdentity(ReadHeld(HeldFile(run_folder)));
  return holder.who.empty() || IsGone(holder, OurIdentity({})) ? "" : holder.who;
}

bool RunsHere(const fs::path& run_folder) { return absl::EndsWith(WhoRuns(run_folder), OnThisHost()); }

std::string WhoRan(const fs::path& run_folder) {
  std::error_code error;
  return fs::exists(LockFile(run_folder), error) ? Holder(run_folder) : "";
}

}  // namespace slackline::cli
