#include "cli/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace slackline::cli {
namespace {

std::filesystem::path LockFile(const std::filesystem::path& run_folder) { return run_folder / "lock"; }

std::string OnThisHost() {
  char host[HOST_NAME_MAX + 1] = "";
  ::gethostname(host, sizeof(host) - 1);
  return absl::StrCat(" on ", host);
}

std::string Holder(const std::filesystem::path& run_folder) {
  std::ifstream in(LockFile(run_folder));
  std::string who;
  return std::getline(in, who) && !who.empty() ? who : "another process";
}

}  // namespace

absl::StatusOr<RunLock> RunLock::Take(const std::filesystem::path& run_folder) {
  const std::filesystem::path file = LockFile(run_folder);
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("cannot write ", file.string(), ": ", ::strerror(errno)));
  RunLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::AlreadyExistsError(
        absl::StrCat("the run in ", run_folder.string(), " still runs: ", Holder(run_folder), " looks after it"));
  }
  const std::string who = absl::StrCat("process ", ::getpid(), OnThisHost(), "\n");
  // For people: a run does not depend on it.
  if (::ftruncate(fd, 0) == 0) {
    const ssize_t ignored = ::write(fd, who.data(), who.size());
    static_cast<void>(ignored);
  }
  return lock;
}

RunLock::RunLock(RunLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}

std::string WhoRuns(const std::filesystem::path& run_folder) {
  const int fd = ::open(LockFile(run_folder).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const bool held = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return held ? Holder(run_folder) : "";
}

bool RunsHere(const std::filesystem::path& run_folder) { return absl::EndsWith(WhoRuns(run_folder), OnThisHost()); }

std::string WhoRan(const std::filesystem::path& run_folder) {
  std::error_code error;
  return std::filesystem::exists(LockFile(run_folder), error) ? Holder(run_folder) : "";
}

}  // namespace slackline::cli
